// A card for each broker: whether it answers, who is the controller, what it leads.

import { color, el, flash, number, redo, say, sync } from "./dom.js";

const STATES = {
  alive: ["alive", "good"],
  silent: ["no answer", "warned"],
  suspected: ["suspected", "failed"],
  gone: ["gone", "failed"],
};

function make(broker) {
  return el("li", { class: `broker ${color(broker.id)}` },
    el("div", { class: "line" }, el("span", { class: "id" }, `Broker ${broker.id}`), el("span", { class: "state" }),
      el("span", { class: "pill crown", hidden: true }, "controller")),
    el("dl", {}), el("span", { class: "mono soft place" }), el("span", { class: "why" }));
}

const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));

function update(card, broker) {
  const [text, kind] = STATES[broker.state];
  const changed = card.dataset.state !== undefined && card.dataset.state !== broker.state;
  card.dataset.state = broker.state;
  card.dataset.broker = broker.id;
  card.querySelector(".state").className = `state pill ${kind}`;
  say(card.querySelector(".state"), text);
  card.querySelector(".crown").hidden = !broker.controller;
  if (changed) flash(card);
  const facts = [broker.leads, broker.replicas, broker.incarnation, broker.rack];
  redo(card.querySelector("dl"), facts, () => [
    fact("leads", number(broker.leads)),
    fact("replicas", number(broker.replicas)),
    fact("incarnation", broker.incarnation === null ? "–" : String(broker.incarnation)),
    ...(broker.rack ? [fact("rack", broker.rack)] : []),
  ]);
  const addresses = Object.entries(broker.addresses).map(([name, address]) => `${name} ${address}`).join("  ");
  redo(card.querySelector(".place"), [addresses, broker.web], () =>
    broker.web ? el("a", { href: broker.web, title: addresses }, broker.web.replace(/^http:\/\/|\/$/g, "")) : addresses);
  say(card.querySelector(".why"), broker.state === "alive" ? "" : broker.why || "");
}

export const drawBrokers = (list, found) => sync(list, found.brokers, (broker) => String(broker.id), make, update);
