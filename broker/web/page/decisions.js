// What brokers and controllers decided, newest first, each with its reasons.

import { clock, color, el, plural, sync } from "./dom.js";
import { poll } from "./live.js";

function make(one) {
  const because = one.because.length === 1
    ? el("span", { class: "because" }, one.because[0])
    : one.because.length > 1 && el("details", {},
      el("summary", {}, one.because[0].startsWith("because ") ? one.because[0] : plural(one.because.length, "reason")),
      el("ul", {}, ...one.because.slice(one.because[0].startsWith("because ") ? 1 : 0).map((each) => el("li", {}, each))));
  return el("li", { "data-row": true, tabindex: "-1", class: color(one.by) },
    el("time", { datetime: new Date(one.at_ms).toISOString(), title: new Date(one.at_ms).toLocaleString() }, clock(one.at_ms)),
    el("div", {},
      el("p", {}, one.about && el("span", { class: "about" }, `${one.about}: `), one.sentence),
      because,
      el("div", { class: "by" }, `${one.by_controller ? "controller on " : ""}broker ${one.by}${one.times > 1 ? `, ${one.times} times` : ""}`)));
}

export function drawDecisions(list, found) {
  sync(list, found, (one) => [one.at_ms, one.by, one.about, one.what, one.times, one.sentence].join("|"), make, () => {});
}

export function decisions(place) {
  const list = el("ol", { class: "decisions", id: "decisions" });
  const only = el("input", { type: "search", placeholder: "topic, broker, word", "aria-label": "Filter decisions", oninput: () => draw() });
  let known = [];
  const draw = () => {
    const words = only.value.trim().toLowerCase();
    const text = (one) => [one.about, one.sentence, one.what, ...one.because].join(" ").toLowerCase();
    drawDecisions(list, known.filter((one) => !words || text(one).includes(words)));
  };
  place.append(el("section", { class: "panel", "aria-labelledby": "decisions-title" },
    el("header", {}, el("h2", { id: "decisions-title" }, "Decisions of all brokers, newest first"), el("div", { class: "right" }, only)),
    list));
  poll(() => "/api/decisions?limit=300", 2000, (found) => { known = found.decisions; draw(); });
}
