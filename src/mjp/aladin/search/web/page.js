"use strict";
// Keys for people who search a lot. Everything on the page works without this file.

const query = document.getElementById("q");
const cards = () => Array.from(document.querySelectorAll(".card-link"));

function follow(selector, within = document) {
  const link = within?.querySelector(selector);
  if (link) link.click();
}

function move(key) {
  const links = cards();
  const here = links.indexOf(document.activeElement);
  if (here < 0) return links[0]?.focus();
  if (key === "ArrowRight") return links[here + 1]?.focus();
  if (key === "ArrowLeft") return links[here - 1]?.focus();
  // up and down: the nearest card of the next row, by where the cards are on the page
  const box = links[here].getBoundingClientRect();
  const rows = links
    .map((link) => ({ link, rect: link.getBoundingClientRect() }))
    .filter(({ rect }) => (key === "ArrowDown" ? rect.top - box.top : box.top - rect.top) > box.height / 2);
  const distance = ({ rect }) => 10 * Math.abs(rect.top - box.top) + Math.abs(rect.left - box.left);
  rows.sort((a, b) => distance(a) - distance(b));
  rows[0]?.link.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName);
  if (typing) {
    if (event.key === "Escape") document.activeElement.blur();
    return;
  }
  if (event.key === "/") query.select();
  else if (event.key.startsWith("Arrow") && cards().length) move(event.key);
  else if (event.key === "s") follow(".similar", document.activeElement?.closest("li") ?? document);
  else if (event.key === "n") follow("[rel=next]");
  else if (event.key === "p") follow("[rel=prev]");
  else if (event.key === "Escape" && document.querySelector("[rel=up]")) follow("[rel=up]");
  else return;
  event.preventDefault();
});
