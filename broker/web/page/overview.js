// Brokers, partitions with what their leaders know of each follower, and beside them what has happened.

import { drawDecisions } from "./decisions.js";
import { el, number, plural, redo, say } from "./dom.js";
import { drawBrokers } from "./brokers.js";
import { poll } from "./live.js";
import { partitionTable } from "./partitions.js";
import { newTopic } from "./new_topic.js";
import { timelinePanel } from "./timeline.js";

const PAGE = 50;

function summaryOf(found) {
  const { counts } = found;
  const pill = (count, text, kind) => count && el("span", { class: `pill ${kind}` }, `${number(count)} ${text}`);
  const well = !counts.offline && !counts.under_replicated;
  return [
    el("span", {}, el("b", {}, number(counts.topics)), " topics"),
    el("span", {}, el("b", {}, number(counts.partitions)), " partitions"),
    well && el("span", { class: "pill good" }, "every replica is in sync"),
    pill(counts.under_replicated, "under-replicated", "warned"),
    pill(counts.offline, "offline", "failed"),
    found.controller === null && el("span", { class: "pill failed" }, "no controller"),
    !found.zookeeper_connected && el("span", { class: "pill failed" }, "ZooKeeper is not connected"),
    el("span", { class: "faint" }, `cluster ${found.cluster_id}, seen by broker ${found.asked}`),
  ].filter(Boolean);
}

export function overview(place) {
  const wanted = { search: "", troubled: false, internal: false, at: 0 };
  const query = () => {
    const asked = new URLSearchParams({ search: wanted.search, at: wanted.at, limit: PAGE });
    for (const flag of ["troubled", "internal"]) if (wanted[flag]) asked.set(flag, "1");
    return asked;
  };
  const changed = () => {
    wanted.at = 0;
    loops.forEach((loop) => loop.turn());
  };
  const search = el("input", {
    type: "search", placeholder: "topic or topic-partition", "aria-label": "Search partitions",
    oninput: () => { wanted.search = search.value.trim(); changed(); },
  });
  const check = (name, text) => {
    const box = el("input", { type: "checkbox", onchange: () => { wanted[name] = box.checked; changed(); } });
    return el("label", { class: "check" }, box, text);
  };
  const summary = el("div", { class: "summary", id: "summary" });
  const brokers = el("ul", { class: "brokers", id: "brokers", "aria-label": "Brokers" });
  const table = partitionTable();
  const count = el("span", { class: "count" });
  const pages = el("span", { class: "pages" });
  const create = el("button", { type: "button", hidden: true, onclick: () => newTopic(changed) }, "New topic");
  const history = timelinePanel("Leaderships and ISRs", () => query(), 12);
  const decided = el("ol", { class: "decisions", id: "decisions" });

  place.append(
    summary,
    brokers,
    el("section", { class: "panel", "aria-labelledby": "partitions-title" },
      el("header", {}, el("h2", { id: "partitions-title" }, "Partitions ", count),
        el("div", { class: "right" }, check("troubled", "in trouble only"), check("internal", "internal topics"),
          search, create)),
      table.node, pages),
    el("div", { class: "split" }, history.node,
      el("section", { class: "panel", "aria-labelledby": "decided-title" },
        el("header", {}, el("h2", { id: "decided-title" }, "Last decisions"),
          el("a", { class: "right soft", href: "#/decisions" }, "all, with reasons")),
        decided)),
  );

  const draw = (found) => {
    redo(summary, [found.counts, found.controller, found.zookeeper_connected], () => summaryOf(found));
    drawBrokers(brokers, found);
    table.draw(found.partitions.rows, found.brokers);
    create.hidden = !found.may_create_topics;
    const { matching, at } = found.partitions;
    say(count, matching > PAGE ? `${number(at + 1)}–${number(Math.min(at + PAGE, matching))} of ${number(matching)}` : number(matching));
    redo(pages, [matching, at], () => pager(matching, at, (to) => { wanted.at = to; loops.forEach((loop) => loop.turn()); }));
  };
  const loops = [
    poll(() => `/api/cluster?${query()}`, 1000, draw),
    history.start(),
    poll(() => "/api/decisions?limit=12", 2000, (found) => drawDecisions(decided, found.decisions)),
  ];
}

function pager(matching, at, go) {
  if (matching <= PAGE) return [];
  const button = (text, to, off) => el("button", { type: "button", disabled: off, onclick: () => go(to) }, text);
  return [
    el("div", { class: "fields" },
      button("Earlier", Math.max(at - PAGE, 0), at === 0),
      button("Later", at + PAGE, at + PAGE >= matching),
      el("span", { class: "faint" }, plural(matching, "partition"))),
  ];
}
