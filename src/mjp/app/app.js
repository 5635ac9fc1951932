"use strict";
// The jigsaw follows its sliders, attacks run and report. No request is made that the page does not show.

const $ = (id) => document.getElementById(id);
const PICTURE = "mjp-picture"; // the name of the picture, shared by the views of a tab

let picture = sessionStorage.getItem(PICTURE) ?? document.querySelector("[name=picture]")?.value ?? "sample";

async function ask(address, options) {
  const answer = await fetch(address, options);
  const content = await answer.json().catch(() => ({ error: "The server gave no answer that can be read." }));
  if (!answer.ok) throw new Error(content.error ?? "This request cannot be answered.");
  return content;
}

const explain = (error) =>
  error instanceof TypeError ? "The server does not answer any more: start mjp app again." : error.message;

const element = (name, text, attributes = {}) => {
  const node = Object.assign(document.createElement(name), attributes);
  if (text !== undefined) node.textContent = text;
  return node;
};

// a picture of one's own

async function upload(file) {
  const problem = $("upload-error");
  problem.hidden = true;
  $("file-notes").textContent = `Reading ${file.name} …`;
  try {
    const { picture: name } = await ask("/api/pictures", { method: "POST", body: file });
    use(name);
    $("file-notes").textContent = file.name;
  } catch (error) {
    problem.textContent = explain(error);
    problem.hidden = false;
    $("file-notes").textContent = "Choose another picture, or drop it here.";
  }
}

function use(name) {
  picture = name;
  sessionStorage.setItem(PICTURE, name);
  if ($("jigsaw")) showJigsaw();
}

function acceptFiles() {
  const drop = $("drop");
  if (!drop) return;
  $("file").hidden = false;
  $("file").addEventListener("change", () => $("file").files[0] && upload($("file").files[0]));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
    });
  }
}

// the jigsaw view

let latest = 0; // the number of the newest question: older answers are thrown away

const percent = (answer) => `${answer.label}, ${(100 * answer.probability).toFixed(0)} %`;

async function showJigsaw() {
  const number = ++latest;
  const form = new FormData($("jigsaw"));
  form.set("picture", picture);
  const link = new URLSearchParams(form);
  $("ratio-value").textContent = Number(form.get("ratio")).toFixed(2);
  $("original").src = `/picture/${encodeURIComponent(picture)}`;
  const image = new Image();
  image.src = `/jigsaw.jpg?${link}`;
  try {
    const [answers] = await Promise.all([ask(`/api/jigsaw?${link}`), image.decode().catch(() => {})]);
    if (number !== latest) return;
    $("shuffled").src = image.src;
    $("masked").textContent = answers.masked;
    for (const row of answers.models) {
      const line = lineOf(row.model);
      line.querySelector(".before").textContent = percent(row.before);
      line.querySelector(".after").textContent = percent(row.after);
      line.querySelector(".consistency").textContent = "…";
    }
    await count(link, number);
  } catch (error) {
    if (number === latest) fail(error);
  }
}

const lineOf = (model) => document.querySelector(`#answers tr[data-model="${CSS.escape(model)}"]`);

async function count(link, number) {
  const same = {};
  for (let first = 0, draws = 1; first < draws; ) {
    const part = await ask(`/api/consistency?${link}&first=${first}&count=10`);
    if (number !== latest) return;
    draws = part.draws;
    first += part.count;
    for (const row of part.models) {
      same[row.model] = (same[row.model] ?? 0) + row.same;
      lineOf(row.model).querySelector(".consistency").textContent = `${same[row.model]} of ${first}`;
    }
  }
}

function fail(error) {
  $("upload-error").textContent = explain(error);
  $("upload-error").hidden = false;
  if (error.message.includes("not in memory")) use("sample"); // the server was started again
}

function followJigsaw() {
  if (!$("jigsaw")) return;
  $("jigsaw").addEventListener("input", showJigsaw);
  $("jigsaw").addEventListener("submit", (event) => event.preventDefault());
  showJigsaw();
}

// the leak view

let job = null;

function question() {
  const form = new FormData($("leak"));
  const ratio = Number(form.get("ratio"));
  const defences = form.getAll("defence").map((name) => {
    const [first, ...rest] = name.split("+");
    return first === "none" ? name : [`${first}:${ratio}`, ...rest].join("+");
  });
  if (form.get("other").trim()) defences.push(form.get("other").trim());
  const numbers = Object.fromEntries(["rounds", "batch", "seed"].map((name) => [name, Number(form.get(name))]));
  return { picture, model: form.get("model"), defences, ...numbers };
}

async function attack(event) {
  event.preventDefault();
  $("rows").replaceChildren();
  $("command-line").hidden = true;
  $("status").textContent = "Asking …";
  try {
    const asked = await ask("/api/leak", { method: "POST", body: JSON.stringify(question()) });
    job = asked.job;
    $("command").textContent = asked.command;
    $("command-line").hidden = false;
    await follow(job);
  } catch (error) {
    $("status").textContent = explain(error);
    if (error.message.includes("not in memory")) use("sample");
  }
  rest();
}

function rest() {
  $("start").disabled = false;
  $("cancel").hidden = true;
  $("progress").hidden = true;
}

async function follow(name) {
  $("start").disabled = true;
  $("cancel").hidden = false;
  for (let shown = 0; ; ) {
    const run = await ask(`/api/jobs/${name}`);
    for (; shown < run.findings.length; shown++) show(run.findings[shown]);
    $("progress").hidden = false;
    $("progress").max = run.total;
    $("progress").value = run.done;
    $("status").textContent = sentence(run);
    if (!["waiting", "running"].includes(run.state)) return;
    await new Promise((resume) => setTimeout(resume, 300));
  }
}

function sentence(run) {
  const seconds = `${run.seconds.toFixed(1)} s`;
  if (run.state === "waiting") return `Waiting for ${run.ahead} other ${run.ahead === 1 ? "run" : "runs"}.`;
  if (run.state === "running") return `${run.done} of ${run.total} attacks, ${seconds} …`;
  if (run.state === "done") return `${run.total} attacks in ${seconds}.`;
  if (run.state === "cancelled") return `Cancelled after ${run.done} of ${run.total} attacks.`;
  return `It failed: ${run.error}.`;
}

// how close a reconstruction comes to the picture itself: setting (c) where patches were shuffled, else (a)
const against = (finding) => finding.scores.c ?? finding.scores.a ?? null;

function show(finding) {
  const row = rowOf(finding.defence);
  if (finding.verdict) {
    row.querySelector(".verdict").textContent = finding.verdict;
    return;
  }
  if (finding.is_guess) {
    row.tiles.append(tile(`/picture/${encodeURIComponent(picture)}`, "the picture", "Your picture"));
    row.tiles.append(tile(finding.picture, `guess, ${decibels(finding)}`, "What one knows without the gradient"));
    return;
  }
  const text = finding.refused
    ? `cannot run: ${finding.refused}`
    : `${decibels(finding)}, ${(100 * against(finding).exact).toFixed(0)} % of patches bit-exact, ${finding.seconds.toFixed(1)} s` +
      (finding.rounds_until_exact ? `; exact after ${finding.rounds_until_exact} rounds` : "");
  row.list.append(element("dt", finding.attack), element("dd", text));
  if (finding.refused || against(finding).psnr <= row.best) return;
  row.best = against(finding).psnr;
  row.tile?.remove();
  row.tile = tile(finding.picture, `${finding.attack}, ${decibels(finding)}`, "The best reconstruction so far");
  row.tiles.append(row.tile);
}

const decibels = (finding) => `${against(finding).psnr.toFixed(1)} dB`;

function tile(address, caption, description) {
  const figure = element("figure");
  figure.append(element("img", undefined, { src: address, alt: description, className: "sharp" }));
  figure.append(element("figcaption", caption));
  return figure;
}

function rowOf(defence) {
  for (const row of $("rows").children) if (row.defence === defence) return row;
  const row = element("section", undefined, { defence, best: -Infinity });
  row.append(element("h2", defence === "none" ? "no defence" : defence));
  row.append(element("p", "Attacks are running.", { className: "verdict" }));
  row.tiles = element("div", undefined, { className: "tiles" });
  const details = element("details");
  row.list = element("dl");
  details.append(element("summary", "All attacks"), row.list);
  row.append(row.tiles, details);
  $("rows").append(row);
  return row;
}

function followLeak() {
  if (!$("leak")) return;
  $("leak").addEventListener("submit", attack);
  $("cancel").addEventListener("click", () => ask(`/api/jobs/${job}`, { method: "DELETE" }).catch(() => {}));
  for (const name of ["ratio", "rounds", "batch"]) {
    const show = () => ($(`${name}-value`).textContent = name === "ratio" ? Number($(name).value).toFixed(2) : $(name).value);
    $(name).addEventListener("input", show);
    show();
  }
}

acceptFiles();
followJigsaw();
followLeak();
