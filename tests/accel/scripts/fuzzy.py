import numpy as np
import skfuzzy

X = np.random.default_rng(0).normal(size=(2, 300)) + 6 * (np.arange(300) % 3)
centers, u, u0, d, jm, p, fpc = skfuzzy.cmeans(X, 3, 2, error=0.005, maxiter=1000, seed=4)
print(np.round(centers, 9).tolist(), p, round(fpc, 9), np.round(jm, 6).tolist(), u.shape, d.shape, u0[0, 0])
u, u0, d, jm, p, fpc = skfuzzy.cmeans_predict(X[:, :50], centers, 2, error=0.005, maxiter=1000, seed=5)
print(u.argmax(axis=0).tolist(), p, round(fpc, 9), np.random.rand())
