"use strict";
// The jigsaw follows its slider; consistency is counted afterwards, a few jigsaws at a time.

let latest = 0; // the number of the newest question: older answers are thrown away

const percent = (answer) => `${answer.label}, ${(100 * answer.probability).toFixed(0)}\u00a0%`;
const lineOf = (model) => document.querySelector(`#answers tr[data-model="${CSS.escape(model)}"]`);

async function loaded(address) {
  const image = new Image();
  image.src = address;
  await image.decode().catch(() => {});
  return address;
}

async function showJigsaw() {
  const number = ++latest;
  const form = $("jigsaw");
  showValues(form);
  document.querySelectorAll("#answers tr").forEach((line) => showCount(line.dataset.model, 0, 0)); // not of this jigsaw
  if (!form.reportValidity()) return;
  remember(form);
  form.elements.picture.value = picture();
  const link = new URLSearchParams(new FormData(form));
  try {
    const pictures = Promise.all([loaded(pictureAddress()), loaded(`/jigsaw.jpg?${link}`)]);
    const answers = await ask(`/api/jigsaw?${link}`);
    const [original, shuffled] = await pictures;
    if (number !== latest) return;
    document.querySelector(".tiles").classList.remove("pending");
    $("original").src = original;
    $("shuffled").src = shuffled;
    $("masked").textContent = answers.masked;
    answers.models.forEach(showAnswers);
    await count(link, number);
    if (number === latest) settle(link);
  } catch (error) {
    if (number !== latest) return;
    forget(error);
    complain(error);
  }
}

function showAnswers(row) {
  const line = lineOf(row.model);
  line.querySelector(".before").textContent = percent(row.before);
  line.querySelector(".after").textContent = percent(row.after);
  line.querySelector(".after").classList.toggle("changed", row.before.label !== row.after.label);
}

function showCount(model, same, draws) {
  const line = lineOf(model);
  line.querySelector("progress").hidden = false;
  line.querySelector("progress").value = same;
  line.querySelector(".consistency").textContent = draws ? `${same} of ${draws}` : "…";
}

async function count(link, number) {
  const same = {};
  for (let first = 0, draws = 1; first < draws; ) {
    const part = await ask(`/api/consistency?${link}&first=${first}&count=10`);
    if (number !== latest) return;
    draws = part.draws;
    first += part.count;
    for (const row of part.models) {
      same[row.model] = (same[row.model] ?? 0) + row.same;
      showCount(row.model, same[row.model], first);
    }
  }
}

// at rest: the address gives the same page again, and a screen reader says what has changed
function settle(link) {
  history.replaceState(null, "", `/?${link}`);
  const lines = [...document.querySelectorAll("#answers tr")].map((line) => {
    const [after, same] = ["after", "consistency"].map((name) => line.querySelector(`.${name}`).textContent);
    return `${line.dataset.model}: ${after}, the same answer in ${same} jigsaws.`;
  });
  $("spoken").textContent = [`${$("masked").textContent} patches masked.`, ...lines].join(" ");
}

const served = $("jigsaw").elements.picture.value; // what the server has drawn
const asked = new URLSearchParams(location.search).get("picture");
if (asked === served && asked !== picture()) use(asked);
document.querySelector(".tiles").classList.toggle("pending", served !== picture());
fill($("jigsaw"));
$("jigsaw").addEventListener("input", () => {
  complain(null);
  showJigsaw();
});
$("jigsaw").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("picture", showJigsaw);
showJigsaw();
