"use strict";
// What the views share: questions to the server, the picture, and settings, which a tab remembers between views.

const $ = (id) => document.getElementById(id);

const saved = JSON.parse(sessionStorage.getItem("mjp") ?? "{}"); // picture, file, fields, job

function save(values) {
  Object.assign(saved, values);
  sessionStorage.setItem("mjp", JSON.stringify(saved));
}

const picture = () => saved.picture ?? "sample";
const pictureAddress = () => `/picture/${encodeURIComponent(picture())}`;

async function ask(address, options) {
  const answer = await fetch(address, options);
  const content = await answer.json().catch(() => ({ error: "The server gave no answer that can be read." }));
  if (!answer.ok) throw new Error(content.error ?? "This request cannot be answered.");
  return content;
}

const explain = (error) =>
  error instanceof TypeError ? "The server does not answer any more: start mjp app again." : error.message;

function element(name, text, attributes = {}) {
  const node = Object.assign(document.createElement(name), attributes);
  if (text !== undefined) node.textContent = text;
  return node;
}

function complain(error) {
  $("problem").textContent = error ? explain(error) : "";
  $("problem").hidden = !error;
}

// settings: the address comes first, then what was chosen in another view

function fill(form) {
  const address = new URLSearchParams(location.search);
  for (const field of form.elements) {
    const values = address.has(field.name) ? address.getAll(field.name) : saved.fields?.[field.name];
    if (!values || field.type === "hidden") continue;
    if (field.type === "checkbox") field.checked = values.includes(field.value);
    else if (!field.options || [...field.options].some((option) => option.value === values[0])) field.value = values[0];
  }
}

function remember(form) {
  const data = new FormData(form);
  const names = [...form.elements].map((field) => field.name).filter((name) => name && name !== "picture");
  save({ fields: { ...saved.fields, ...Object.fromEntries(names.map((name) => [name, data.getAll(name)])) } });
}

function showValues(form) {
  for (const field of form.querySelectorAll("input[type=range]")) {
    const digits = field.step.includes(".") ? 2 : 0;
    $(`${field.id}-value`).textContent = Number(field.value).toFixed(digits);
  }
}

// a picture of one's own

function use(name, file) {
  save({ picture: name, file });
  showPicture();
  document.dispatchEvent(new Event("picture"));
}

function showPicture() {
  $("preview").src = pictureAddress();
  $("file-notes").textContent = saved.file ?? "A picture of this package. Choose one of your own, or drop it here.";
}

async function upload(file) {
  complain(null);
  $("file-notes").textContent = `Reading ${file.name} …`;
  try {
    const { picture: name } = await ask("/api/pictures", { method: "POST", body: file });
    use(name, file.name);
  } catch (error) {
    complain(new Error(`${file.name}: ${explain(error)}`));
    showPicture(); // the one before is still there
  }
  $("file").value = ""; // so that the same file can be chosen again
}

function forget(error) {
  if (error.message.includes("picture is not in memory")) use("sample"); // the server was started again
}

function acceptFiles() {
  $("file").hidden = false;
  $("file").addEventListener("change", () => $("file").files[0] && upload($("file").files[0]));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      $("drop").classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
    });
  }
  showPicture();
}

acceptFiles();
