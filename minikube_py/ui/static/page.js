"use strict";
// The page of a running control plane. All data comes from `state`, which answers with what changed.

const grid = new Grid($("nodes")), nodes = grid.nodes;
let sequence = 0;
let session = sessionStorage.getItem("session");
let drawAsked = false;
let asking = null;                // ends the request under way
const rates = [];                 // [seconds, created, bound, running]
const SHOWN_S = 60, DETAIL_MS = 2000, NODE_PODS_SHOWN = 200;

const LINK = "open the link that `minikube-py up --ui` printed, which works once, within an hour; for another, type: kubectl get --raw /minikube-py/ui/link";

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { Authorization: `Bearer ${session}` }, cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) {
    const text = answer.status === 401 ? LINK : body.message || answer.statusText;
    throw Object.assign(new Error(text), { status: answer.status });
  }
  return body;
}

async function login() {
  const code = location.hash.slice(1);
  if (!code) return;
  history.replaceState(null, "", location.pathname);
  session = code;
  try {
    session = (await ask("login", { method: "POST" })).session;
  } catch (error) {
    session = null;
    throw error;
  }
  sessionStorage.setItem("session", session);
}

function say(text) { if ($("link").textContent !== text) $("link").textContent = text; }

async function follow() {
  for (;;) {
    try {
      if (document.hidden) { await new Promise((go) => document.addEventListener("visibilitychange", go, { once: true })); }
      asking = new AbortController();
      take(await ask(`state?since=${sequence}&group=${encodeURIComponent($("group").value)}`, { signal: asking.signal }));
      say("");
    } catch (error) {
      if (error.name === "AbortError") continue;
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
  offerLabels(state.labels);
  if (state.nodes.length) offerResources($("resource"), state.nodes.flatMap((each) => Object.keys(each[5])));
  rates.push([state.now, state.totals.created, state.totals.bound, state.totals.running]);
  while (rates.length > 2 && rates[0][0] < state.now - SHOWN_S) rates.shift();
  showCounts($("counts"), [["nodes", nodes.size], ["pods", state.pods], ["pending", state.pending]]);
  showWaiting(state);
  showStore(state.store);
  $("latencies").tBodies[0].replaceChildren(...Object.entries(state.latency_s).map(([name, [median, p99]]) => row(name, ms(median), ms(p99))));
  draw();
}

function showStore(store) {
  const { raft_term: term, raft_leading: leading, raft_commit_index: committed, raft_applied_index: applied, raft_members: members } = store;
  if (term === undefined) { showPairs($("store"), [["engine", "etcd"]]); return; }
  const text = (value) => value.toLocaleString("en");
  showPairs($("store"), [["role", leading ? "leader" : "follower"], ["members", text(members)], ["term", text(term)], ["elections won, as seen here", text(store.raft_leaders_seen_total)], ["commit index", text(committed)], ["applied index", text(applied)], ["entries to apply", text(committed - applied)], ["replication lag, entries", members > 1 ? (leading ? text(store.raft_lag_entries) : "known to the leader") : "no other member"]]);
}

function showWaiting(state) {
  if (state.waiting === null) return;         // as before
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
$("group").addEventListener("change", () => {
  grid.groupedBy = $("group").selectedOptions[0].textContent.replace("nothing", "");
  sequence = 0;                   // All nodes are sent again, with the value of that label.
  if (asking) asking.abort();
});
function offerLabels(labels) {
  const known = new Set([...$("group").options].map((each) => each.value));
  $("group").append(...labels.filter((each) => !known.has(each)).map((each) => element("option", each, { value: each })));
}
addEventListener("resize", draw);

// --- a field selector, as it is typed ------------------------------------------------------------------------------------

let typed = 0;
async function match() {
  const text = $("where").value.trim(), mine = ++typed;
  if (!text) { grid.matched = null; $("found").textContent = ""; $("where").removeAttribute("aria-invalid"); $("found-key").hidden = true; draw(); return; }
  try {
    const { names, more } = await ask(`match?where=${encodeURIComponent(text)}`);
    if (mine !== typed) return;
    grid.matched = new Set(names);
    $("found").textContent = `${names.length.toLocaleString("en")}${more ? " or more" : ""} of ${nodes.size.toLocaleString("en")} nodes`;
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
  const last = ([name]) => `${name} ${Math.round((points.get(name).at(-1) || [0, 0])[1])}/s`;
  $("rates").setAttribute("aria-label", `Pods per second over the last minute, now ${series.map(last).join(", ")}`);
  series.forEach((each, index) => {
    const [name, , colour] = each;
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1.5;
    pen.setLineDash(index ? [4, 3] : []);
    pen.beginPath();
    for (const [at, value] of points.get(name)) pen.lineTo(width * (1 - (now - at) / SHOWN_S), height - 14 - (height - 30) * (value / top));
    pen.stroke();
    pen.fillText(last(each), width - 180 + 95 * index, 11);
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
let detail = null;                // {what, name, at: the sequence number when it was asked}, while the panel is open
let detailAsked = false;
async function open_(what, name) {
  grid.selected = what === "node" ? name : null;
  if ($("detail").hidden) cameFrom = document.activeElement;
  const mine = detail = { what, name };
  await showDetail(mine);
  if (mine !== detail) return;
  $("detail-title").textContent = `${what} ${name}`;
  $("detail").hidden = false;
  const { top } = $("detail").getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) $("detail").scrollIntoView();
  $("close").focus({ preventScroll: true });
  draw();
}

async function showDetail(mine) {
  const { what, name } = mine, body = $("detail-body"), fresh = element("div");
  mine.at = sequence;
  try {
    const found = await ask(`${what}?${what === "pod" ? "key" : "name"}=${encodeURIComponent(name)}`);
    fresh.append(...(what === "pod" ? podDetail(found) : nodeDetail(found)));
  } catch (error) {
    if (!error.status) mine.at = -1;          // the server did not answer: asked again
    if (!error.status && mine.shown) return;
    fresh.append(element("p", error.message));
  }
  mine.shown = true;
  if (mine !== detail || fresh.innerHTML === body.innerHTML) return;
  const focused = body.contains(document.activeElement) ? document.activeElement.textContent : "";
  body.replaceChildren(...fresh.childNodes);
  if (focused) ([...body.querySelectorAll("button")].find((each) => each.textContent === focused) || $("close")).focus({ preventScroll: true });
}
setInterval(async () => {         // An answer may take longer than the interval: the scheduler looks at every node.
  if (!detail || detail.at === sequence || detailAsked || document.hidden) return;
  detailAsked = true;
  await showDetail(detail);
  detailAsked = false;
}, DETAIL_MS);
$("close").addEventListener("click", () => {
  $("detail").hidden = true;
  detail = null;
  grid.selected = null;
  if (cameFrom && cameFrom.isConnected) cameFrom.focus();
  draw();
});

const MOMENTS = [["created", "created"], ["queued", "queued"], ["scored", "filtered and scored"], ["refused", "queued and tried: no node fitted"], ["bound", "bound"], ["running", "running"]];

function podDetail(pod) {
  const { moments } = pod, names = MOMENTS.filter(([each]) => moments[each]), parts = [];
  const times = element("ul", "", { className: "times" }), first = names.length ? moments[names[0][0]] : 0;
  if (!moments.created) times.append(line("created", new Date(pod.created).toLocaleTimeString("en-GB")));
  for (const [each, text] of names) times.append(line(text, each === names[0][0] ? new Date(first * 1000).toLocaleTimeString("en-GB") : `+ ${ms(Math.max(0, moments[each] - first))}`));
  if (!pod.node && pod.explained && pod.explained.heldBack) times.append(line("not queued", `held back by ${pod.explained.heldBack.plugin}`));
  parts.push(element("p", `${pod.phase || "no phase"}${pod.node ? ` on ${pod.node}` : ""}${pod.terminating ? ", terminating" : ""}`), times);
  const why = pod.explained;
  if (why && why.problem) parts.push(element("p", why.problem, { className: "reason" }));
  else if (why && !pod.node) parts.push(...whyWaiting(pod, why));
  else if (why) parts.push(...whyNode(pod, why));
  return parts;
}

function line(name, text) { const item = element("li"); item.append(element("span", name), element("span", text)); return item; }

function tableOf(heads, rows, className = "") {
  const table = element("table", "", { className }), head = element("thead"), body = element("tbody"), top = element("tr");
  top.append(...heads.map((each) => element("th", each, { scope: "col" })));
  head.append(top);
  body.append(...rows.map((cells) => row(...cells)));
  table.append(head, body);
  return table;
}

const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

/** The recorded decision with the scores of that time, and how nodes rank now, the pod's own first. */
function whyNode(pod, why) {
  const parts = [element("h2", "Why this node")], { decision, flow } = why;
  if (why.nodeGone) parts.push(element("p", `${why.nodeGone}.`, { className: "reason" }));
  if (flow) parts.push(element("p", `Flow round ${flow.round} of ${flow.model}: its path cost ${flow.price}; waiting would have cost ${flow.alternative}.`));
  if (decision && decision.node) {
    const took = pod.moments.scored - pod.moments.attempted;
    parts.push(element("p", `Scheduler decision ${decision.decision}${took >= 0 ? `, made in ${ms(took)}` : ""}: ${decision.node} was chosen among ${count(decision.fits, "node")} that fitted, of ${decision.of.toLocaleString("en")} examined.`));
    const rows = decision.scores.map((each) => [each.plugin, `${each.score} x ${each.weight}`, String(each.score * each.weight)]);
    const total = decision.scores.reduce((sum, each) => sum + each.score * each.weight, 0);
    if (rows.length) parts.push(tableOf(["its scores then", "x weight", "product"], [...rows, ["total", "", String(total)]]));
    else parts.push(element("p", "No other node fitted, so none was scored.", { className: "reason" }));
  } else if (!flow) parts.push(element("p", "The scheduler no longer remembers this decision, or did not make it.", { className: "reason" }));
  const rows = (why.nodes || []).map((each) => [each.node === pod.node ? `${each.node} (its own)` : each.node, each.fits ? String(each.total) : "no", nodeVerdict(each)]);
  if (rows.length) parts.push(element("p", `As things are now, without this pod ${why.fits.toLocaleString("en")} of ${count(why.of, "node")} would fit:`), tableOf(["node", "score", "by plugin"], rows, "said"));
  return parts;
}

const nodeVerdict = (each) => each.fits ? each.scores.map((score) => `${score.plugin} ${score.weighted}`).join(", ") : `${each.plugin}: ${each.reasons.join(", ")}`;

/** Each group of nodes that refuses the pod for the same reason, and what would change that. */
function whyWaiting(pod, why) {
  const parts = [element("h2", "Why it waits")], { decision, heldBack, preemption } = why;
  if (heldBack) parts.push(element("p", `Held back by ${heldBack.plugin}: ${heldBack.reason}`));
  const said = (decision && decision.message) || why.message || pod.reason;
  if (said) parts.push(element("p", said, { className: "reason" }));
  if (why.fits) parts.push(element("p", `Now ${why.fits.toLocaleString("en")} of ${count(why.of, "node")} would fit; best: ${why.best.slice(0, 5).join(", ")}${why.tied > 5 ? ` and ${(why.tied - 5).toLocaleString("en")} more` : ""}.`));
  else if ((why.changes || []).length) parts.push(tableOf(["nodes", "refuse it because", "to fit there"], why.changes.map((each) => [each.nodes.toLocaleString("en"), each.reason, each.change]), "said"));
  if (preemption) parts.push(element("p", `Preemption would evict from ${preemption.node}: ${preemption.victims.map((each) => each.pod).join(", ")}.`));
  return parts;
}

function nodeDetail(node) {
  const list = element("ul", "", { className: "times" });
  for (const [key, phase, requests] of node.pods.slice(0, NODE_PODS_SHOWN)) {
    const item = element("li");
    const amounts = Object.entries(requests).filter(([name]) => name !== "pods").map(([name, amount]) => `${name} ${amountText(name, amount)}`);
    item.append(element("button", key, { className: "name", type: "button", onclick: () => open_("pod", key) }), element("span", `${phase} ${amounts.join(", ")}`, { className: "reason" }));
    list.append(item);
  }
  if (node.pods.length > NODE_PODS_SHOWN) list.append(element("li", `and ${node.pods.length - NODE_PODS_SHOWN} more`));
  return [element("p", node.pods.length === 1 ? "1 pod" : `${node.pods.length.toLocaleString("en")} pods`), list];
}

login().catch((error) => say(error.message)).then(() => {
  if (session) follow();
  else say(LINK);
});
