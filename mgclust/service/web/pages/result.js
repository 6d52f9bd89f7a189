// Parts of the pages that show a result: the page of a job and the page of a link.

import { element, figure, figures } from "./words.js";

export const MAX_BLOB_BYTES = 500e6; // a browser holds a file in memory before it saves it

export function save(blob, name) {
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// `names` has the name of each score; null: the score is not shown. A score that has two names is shown once.
export function showScores(list, scores, names) {
  const named = Object.entries(scores || {}).filter(([name]) => names[name] !== null);
  const pairs = named.map(([name, value]) => [names[name] || name.replaceAll("_", " "), figure(value)]);
  figures(list, [...new Map(pairs)]);
}

// Make a frame as high as its report, so that the page has one scroll bar. The frame has the origin of the page, so
// that its height can be measured, and runs no scripts.
export function fitToReport(frame) {
  frame.addEventListener("load", () => {
    const content = frame.contentDocument.documentElement;
    const fit = () => (frame.style.height = `${content.getBoundingClientRect().height + 2}px`);
    new ResizeObserver(fit).observe(content);
  });
}
