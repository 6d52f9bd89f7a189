// Texts and elements that the pages share.

export function element(name, text = "", classes = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = classes;
  return made;
}

export function show(id, text) {
  const where = document.getElementById(id);
  where.textContent = text;
  where.hidden = !text;
}

export function facts(list, pairs) {
  list.replaceChildren(...pairs.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
}

// Like `facts`, with one element for each name and its value.
export function figures(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
}

export function sourceName(source) {
  return source.name || source.path || `upload ${source.upload}`;
}

export function timeOf(seconds) {
  return new Date(1000 * seconds).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// Progress, rate and remaining time of the stage of a running job.
export function paceOf(progress) {
  const said = [];
  if (typeof progress.fraction === "number") said.push(`${Math.floor(100 * progress.fraction)} %`);
  if (typeof progress.stage_rate === "number") {
    const [pace, unit] = progress.stage_rate > 0.02 ? [100, "second"] : [6000, "minute"];
    said.push(`${Number((pace * progress.stage_rate).toPrecision(2))} % per ${unit}`);
    said.push(`${duration(progress.stage_eta)} left in this stage`);
  }
  return said.join(" · ");
}

export function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; size >= 999.5 && at < units.length - 1; at++) size /= 1000;
  return `${at && size < 99.95 ? size.toPrecision(3) : Math.round(size)} ${units[at]}`;
}

export function figure(value) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) < 1e7 ? String(Number(value.toPrecision(5))) : value.toExponential(4).replace("e+", "e");
}

export function clusters(n) {
  return n === 1 ? "1 cluster" : `${n.toLocaleString("en")} clusters`;
}

export const FAULTS = {
  input: "The data or the parameters are the cause: change them, and submit again.",
  memory: "Too little memory is the cause: use more devices, or fewer rows.",
  cluster: "The machine or the cluster is the cause, not the job: run it again.",
  mgclust: "An error in mgclust is the cause: please report it with the log.",
};
