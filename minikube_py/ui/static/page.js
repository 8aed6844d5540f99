"use strict";
// The page of a running control plane. All data comes from `state`, which answers with what changed.

const grid = new Grid($("nodes")), nodes = grid.nodes;
let sequence = 0;
let session = sessionStorage.getItem("session");
let drawAsked = false;
const rates = [];                 // [seconds, created, bound, running]
const SHOWN_S = 60;

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { Authorization: `Bearer ${session}` }, cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.message || answer.statusText), { status: answer.status });
  return body;
}

async function login() {
  const code = location.hash.slice(1);
  if (!code) return;
  history.replaceState(null, "", location.pathname);
  session = code;
  session = (await ask("login", { method: "POST" })).session;
  sessionStorage.setItem("session", session);
}

function say(text) { if ($("link").textContent !== text) $("link").textContent = text; }

async function follow() {
  for (;;) {
    try {
      if (document.hidden) { await new Promise((go) => document.addEventListener("visibilitychange", go, { once: true })); }
      take(await ask(`state?since=${sequence}`));
      say("");
    } catch (error) {
      if (error.status === 401) { say(error.message); return; }
      say(`no answer: ${error.message}; trying again`);
      await new Promise((go) => setTimeout(go, 1000));
    }
  }
}

function take(state) {
  if (state.all) { nodes.clear(); grid.laidOut = false; }
  for (const [name, zone, ready, open, pods, amounts] of state.nodes) {
    const old = nodes.get(name);
    if (!old || old.zone !== zone) grid.laidOut = false;
    nodes.set(name, { ...old, zone, ready, open, pods, amounts });
  }
  for (const name of state.gone) { nodes.delete(name); grid.laidOut = false; }
  sequence = state.sequence;
  if (state.nodes.length) offerResources($("resource"), state.nodes.flatMap((each) => Object.keys(each[5])));
  rates.push([state.now, state.totals.created, state.totals.bound, state.totals.running]);
  while (rates.length > 2 && rates[0][0] < state.now - SHOWN_S) rates.shift();
  showCounts($("counts"), [["nodes", nodes.size], ["pods", state.pods], ["pending", state.pending]]);
  showWaiting(state);
  showStore(state.store);
  $("latencies").tBodies[0].replaceChildren(...Object.entries(state.latency_s).map(([name, [median, p99]]) => row(name, ms(median), ms(p99))));
  draw();
}

function showStore({ raft_term: term, raft_leading: leading, raft_commit_index: committed, raft_applied_index: applied }) {
  if (term === undefined) { showPairs($("store"), [["engine", "etcd"]]); return; }
  const text = (value) => value.toLocaleString("en");
  showPairs($("store"), [["role", leading ? "leader" : "follower"], ["term", text(term)], ["commit index", text(committed)], ["applied index", text(applied)], ["entries to apply", text(committed - applied)]]);
}

let waitingShown = "";
function showWaiting(state) {
  const text = JSON.stringify([state.pending, state.waiting]);
  if (text === waitingShown) return;
  waitingShown = text;
  const items = state.waiting.map(([key, reason, created]) => {
    const item = element("li");
    const name = element("button", key, { className: "name", type: "button", onclick: () => open_("pod", key) });
    item.append(name, element("span", reason || `since ${created}`, { className: "reason" }));
    return item;
  });
  if (!items.length) items.push(element("li", "none", { className: "reason" }));
  if (state.pending > state.waiting.length) items.push(element("li", `and ${state.pending - state.waiting.length} more`));
  $("waiting").replaceChildren(...items);
}

// --- nodes -------------------------------------------------------------------------------------------------------------

function draw() {
  if (drawAsked) return;
  drawAsked = true;
  requestAnimationFrame(() => { drawAsked = false; grid.draw($("resource").value); drawRates(); });
}

$("nodes").addEventListener("mousemove", (event) => {
  const name = grid.at(event);
  $("hover").textContent = name ? grid.describe(name) : "";
});
$("nodes").addEventListener("click", (event) => { const name = grid.at(event); if (name) open_("node", name); });
$("nodes").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && grid.selected) open_("node", grid.selected);
  const next = grid.after(event.key);
  if (!next) return;
  event.preventDefault();
  grid.selected = next;
  $("hover").textContent = grid.describe(grid.selected);
  draw();
});
$("resource").addEventListener("change", draw);
$("group").addEventListener("change", () => { grid.byZone = $("group").value === "zone"; grid.laidOut = false; draw(); });
addEventListener("resize", draw);

// --- a field selector, as it is typed ------------------------------------------------------------------------------------

let typed = 0;
async function match() {
  const text = $("where").value.trim(), mine = ++typed;
  if (!text) { grid.matched = null; $("found").textContent = ""; $("where").removeAttribute("aria-invalid"); $("found-key").hidden = true; draw(); return; }
  try {
    const { names } = await ask(`match?where=${encodeURIComponent(text)}`);
    if (mine !== typed) return;
    grid.matched = new Set(names);
    $("found").textContent = `${names.length.toLocaleString("en")} of ${nodes.size.toLocaleString("en")} nodes`;
    $("where").removeAttribute("aria-invalid");
  } catch (error) {
    if (mine !== typed) return;
    grid.matched = null;
    $("found").textContent = error.message;
    $("where").setAttribute("aria-invalid", "true");
  }
  $("found-key").hidden = grid.matched === null;
  draw();
}
let pause = 0;
$("where").addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(match, 150); });
setInterval(() => { if (grid.matched !== null && !document.hidden) match(); }, 2000);

// --- rates ----------------------------------------------------------------------------------------------------------------

function drawRates() {
  const { pen, width, height } = cleared($("rates")), paint = colours();
  if (rates.length < 2) return;
  const now = rates.at(-1)[0], series = [["bound", 2, paint.full], ["running", 3, paint.match]];
  const points = new Map(series.map(([name, at]) => [name, perSecond(at, now)]));
  const top = Math.max(10, ...[...points.values()].flat().map(([, value]) => value));
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = paint.quiet;
  pen.fillText(`${Math.round(top).toLocaleString("en")} pods/s`, 2, 11);
  pen.fillText("60 s ago", 2, height - 2);
  pen.textAlign = "right";
  pen.fillText("now", width - 2, height - 2);
  pen.textAlign = "left";
  pen.fillStyle = paint.line;
  pen.fillRect(0, height - 14, width, 1);
  series.forEach(([name, , colour], index) => {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1.5;
    pen.setLineDash(index ? [4, 3] : []);
    pen.beginPath();
    for (const [at, value] of points.get(name)) pen.lineTo(width * (1 - (now - at) / SHOWN_S), height - 14 - (height - 30) * (value / top));
    pen.stroke();
    pen.fillText(`${name} ${Math.round((points.get(name).at(-1) || [0, 0])[1])}/s`, width - 180 + 95 * index, 11);
  });
  pen.setLineDash([]);
}

function perSecond(at, now) {
  const buckets = new Map();
  for (let index = 1; index < rates.length; index++) {
    const second = Math.floor(rates[index][0]);
    buckets.set(second, (buckets.get(second) || 0) + Math.max(0, rates[index][at] - rates[index - 1][at]));
  }
  const found = [];
  for (let second = Math.ceil(Math.max(now - SHOWN_S, rates[0][0])); second < Math.floor(now); second++) found.push([second + 0.5, buckets.get(second) || 0]);
  return found;
}

// --- one pod, one node ------------------------------------------------------------------------------------------------------

let cameFrom = null;              // what had the focus before the detail panel was opened
async function open_(what, name) {
  grid.selected = what === "node" ? name : null;
  if ($("detail").hidden) cameFrom = document.activeElement;
  const body = $("detail-body");
  try {
    const found = await ask(`${what}?${what === "pod" ? "key" : "name"}=${encodeURIComponent(name)}`);
    body.replaceChildren(...(what === "pod" ? podDetail(found) : nodeDetail(found)));
  } catch (error) { body.replaceChildren(element("p", error.message)); }
  $("detail-title").textContent = `${what} ${name}`;
  $("detail").hidden = false;
  $("detail").scrollIntoView({ block: "nearest" });
  $("close").focus({ preventScroll: true });
  draw();
}
$("close").addEventListener("click", () => {
  $("detail").hidden = true;
  grid.selected = null;
  if (cameFrom && cameFrom.isConnected) cameFrom.focus();
  draw();
});

function podDetail(pod) {
  const parts = [], names = ["created", "bound", "running"].filter((each) => pod.moments[each]);
  const times = element("ul", "", { className: "times" });
  if (!pod.moments.created) times.append(line("created", pod.created));
  for (const each of names) times.append(line(each, each === "created" ? new Date(pod.moments.created * 1000).toLocaleTimeString("en-GB") : `+ ${ms(pod.moments[each] - (pod.moments.created || pod.moments[names[0]]))}`));
  parts.push(element("p", `${pod.phase || "no phase"}${pod.node ? ` on ${pod.node}` : ""}${pod.terminating ? ", terminating" : ""}`), times);
  if (pod.reason) parts.push(element("p", pod.reason, { className: "reason" }));
  const why = pod.explained;
  if (why && why.problem) parts.push(element("p", why.problem, { className: "reason" }));
  else if (why) parts.push(element("h2", "Why this node"), ...whyNodes(why));
  return parts;
}

function line(name, text) { const item = element("li"); item.append(element("span", name), element("span", text)); return item; }

function whyNodes(why) {
  const parts = [];
  if (why.message) parts.push(element("p", why.message, { className: "reason" }));
  for (const each of why.changes || []) parts.push(element("p", `To fit, ${each.change}.`, { className: "reason" }));
  const table = element("table"), head = element("thead"), body = element("tbody");
  head.append(row("node", "score", "by plugin"));
  for (const each of why.nodes || []) {
    const detail = each.fits ? each.scores.map((score) => `${score.plugin} ${score.weighted}`).join(", ") : `${each.plugin}: ${each.reasons.join(", ")}`;
    body.append(row(each.node, each.fits ? String(each.total) : "no", detail));
  }
  table.append(head, body);
  if (body.children.length) parts.push(element("p", `${why.fits} of ${why.of} nodes fit now; the ones that rank first:`, { className: "reason" }), table);
  return parts;
}

function nodeDetail(node) {
  const list = element("ul", "", { className: "times" });
  for (const [key, phase, requests] of node.pods.slice(0, 200)) {
    const item = element("li");
    const amounts = Object.entries(requests).filter(([name]) => name !== "pods").map(([name, amount]) => `${name} ${amountText(name, amount)}`);
    item.append(element("button", key, { className: "name", type: "button", onclick: () => open_("pod", key) }), element("span", `${phase} ${amounts.join(", ")}`, { className: "reason" }));
    list.append(item);
  }
  return [element("p", node.pods.length === 1 ? "1 pod" : `${node.pods.length.toLocaleString("en")} pods`), list];
}

login().catch((error) => say(error.message)).then(() => {
  if (session) follow();
  else say("open the link that `minikube-py up --ui` printed; it works once");
});
