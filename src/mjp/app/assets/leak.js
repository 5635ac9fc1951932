"use strict";
// Attacks run on the server and report; the page shows them side by side, one card for every defence.

const PAUSE = 300; // milliseconds between looks at a run

function question() {
  const form = new FormData($("leak"));
  const ratio = Number(form.get("ratio"));
  const defences = form.getAll("defence").map((name) => {
    const [first, ...rest] = name.split("+");
    return first === "none" ? name : [`${first}:${ratio}`, ...rest].join("+");
  });
  if (form.get("other").trim()) defences.push(form.get("other").trim());
  const numbers = Object.fromEntries(["rounds", "batch", "seed"].map((name) => [name, Number(form.get(name))]));
  return { picture: picture(), model: form.get("model"), defences, ...numbers };
}

function keepAddress() {
  const link = new URLSearchParams(new FormData($("leak")));
  if (!link.has("defence")) link.append("defence", "");
  history.replaceState(null, "", `/leak?${link}`);
}

async function attack(event) {
  event.preventDefault();
  $("start").disabled = true;
  complain(null);
  keepAddress();
  try {
    const { job } = await ask("/api/leak", { method: "POST", body: JSON.stringify(question()) });
    save({ job });
    await follow();
  } catch (error) {
    forget(error);
    complain(error);
    say("Nothing was attacked.");
  }
  rest();
}

// A run goes on while its page is elsewhere: whoever comes back to this view sees it again.
async function resume() {
  if (!saved.job) return;
  await follow().catch(() => save({ job: undefined })); // the server was started again, or has forgotten the run
  rest();
}

function rest() {
  const focused = document.activeElement === $("cancel");
  $("start").disabled = false;
  $("cancel").hidden = true;
  $("progress").hidden = true;
  if (focused) $("start").focus();
}

function busy() {
  const focused = [$("start"), document.body].includes(document.activeElement);
  $("start").disabled = true;
  $("cancel").hidden = false;
  $("progress").hidden = false;
  if (focused) $("cancel").focus();
}

async function follow() {
  const job = saved.job;
  let cards = null;
  for (let seen = 0; ; ) {
    const run = await ask(`/api/jobs/${job}`);
    cards ??= begin(run);
    for (; seen < run.findings.length; seen++) show(run.findings[seen], cards);
    $("progress").max = run.defences.length * run.attacks.length;
    $("progress").value = run.done;
    $("seconds").textContent = run.state === "waiting" ? "" : `${run.seconds.toFixed(1)} s`;
    say(sentence(run));
    if (!["waiting", "running"].includes(run.state)) return end(run, cards);
    if ($("cancel").hidden) busy();
    await new Promise((next) => setTimeout(next, PAUSE));
  }
}

// only a change is announced
function say(text) {
  if ($("status").textContent !== text) $("status").textContent = text;
}

const named = (defence) => (defence === "none" ? "No defence" : defence);

function sentence(run) {
  const total = run.defences.length * run.attacks.length;
  if (run.state === "waiting") return `Waiting for ${run.ahead} other ${run.ahead === 1 ? "run" : "runs"} …`;
  if (run.state === "cancelled") return `Cancelled after ${run.done} of ${total} attacks.`;
  if (run.state === "failed") return `It failed: ${run.error}.`;
  if (run.done === total) return `${total} attacks are done.`;
  const defence = run.defences[Math.floor(run.done / run.attacks.length)];
  return `Attack ${run.done + 1} of ${total}: ${run.attacks[run.done % run.attacks.length]}, ${named(defence).toLowerCase()} …`;
}

// the cards

function begin(run) {
  $("rows").replaceChildren();
  $("command").textContent = run.command;
  $("command-line").hidden = false;
  const original = card("The picture");
  draw(original, run.picture, "The picture as the network takes it");
  original.notes.textContent = `${run.size[1]} × ${run.size[0]} pixels, as the network takes it`;
  const guess = card("Data-free guess");
  guess.notes.textContent = "what one knows without the gradient";
  const cards = { guess };
  for (const defence of run.defences) {
    cards[defence] = Object.assign(card(named(defence)), { best: -Infinity });
    cards[defence].notes.textContent = "not attacked yet";
  }
  return cards;
}

function card(title) {
  const node = element("section", undefined, { className: "result" });
  node.picture = element("div", undefined, { className: "frame" });
  node.number = element("p", undefined, { className: "number" });
  node.notes = element("p", undefined, { className: "notes" });
  node.append(element("h2", title), node.picture, node.number, node.notes);
  $("rows").append(node);
  return node;
}

function draw(node, address, description) {
  node.picture.replaceChildren(element("img", undefined, { src: address, alt: description, className: "sharp" }));
}

// how close a reconstruction comes to the picture itself: setting (c) where patches were shuffled, else (a)
const against = (finding) => finding.scores.c ?? finding.scores.a;
const decibels = (finding) => `${against(finding).psnr.toFixed(1)} dB`;
const exact = (finding) => `${(100 * against(finding).exact).toFixed(0)} % of patches bit-exact`;

function show(finding, cards) {
  const node = cards[finding.defence];
  if (finding.verdict) return conclude(node, finding.verdict, finding.sentence);
  if (finding.is_guess) {
    draw(cards.guess, finding.picture, "The data-free guess");
    cards.guess.number.textContent = decibels(finding);
    node.notes.textContent = "nothing rebuilt so far";
    return;
  }
  list(node, finding);
  if (finding.refused || against(finding).psnr <= node.best) return;
  node.best = against(finding).psnr;
  draw(node, finding.picture, `The best reconstruction, by the attack ${finding.attack}`);
  node.number.textContent = decibels(finding);
  node.notes.textContent = `${exact(finding)}, by ${finding.attack} in ${finding.seconds.toFixed(1)} s`;
}

function list(node, finding) {
  if (!node.list) {
    node.list = element("dl");
    const details = element("details");
    details.append(element("summary", "All attacks"), node.list);
    node.append(details);
  }
  const rounds = finding.rounds_until_exact ? `; exact after ${finding.rounds_until_exact} rounds` : "";
  const text = finding.refused
    ? `cannot run: ${finding.refused}`
    : `${decibels(finding)}, ${exact(finding)}, ${finding.seconds.toFixed(1)} s${rounds}`;
  node.list.append(element("dt", finding.attack), element("dd", text));
}

function conclude(node, verdict, sentence) {
  const text = element("p", undefined, { className: "verdict" });
  const reasons = sentence.startsWith(`${verdict}: `) ? sentence.slice(verdict.length + 2) : sentence;
  text.append(element("strong", verdict, { className: verdict === "exposed" ? "exposed" : "open" }), ` ${reasons}`);
  node.notes.after(text);
  node.concluded = true;
  if (node.best === -Infinity) node.notes.textContent = "no attack could run";
}

function end(run, cards) {
  for (const defence of run.defences) {
    if (cards[defence].concluded) continue;
    conclude(cards[defence], "no verdict", `the run ${run.state === "cancelled" ? "was cancelled" : "failed"} before its end`);
  }
}

fill($("leak"));
showValues($("leak"));
$("leak").addEventListener("input", () => {
  showValues($("leak"));
  remember($("leak"));
});
$("leak").addEventListener("submit", attack);
$("cancel").addEventListener("click", () => ask(`/api/jobs/${saved.job}`, { method: "DELETE" }).catch(complain));
resume();
