"use strict";
// Limits that can be moved: show what the filters would keep.
for (const slider of document.querySelectorAll("input[data-edges]")) {
  const edges = JSON.parse(slider.dataset.edges);
  const kept = JSON.parse(slider.dataset.kept);
  const present = Number(slider.dataset.present);
  const output = document.getElementById(slider.dataset.output);
  const line = document.getElementById(slider.dataset.line);
  const show = () => {
    const at = Number(slider.value);
    const change = Math.round(kept[at] - present);
    const value = edges[at].toLocaleString("en", { maximumSignificantDigits: 4 });
    const sign = change > 0 ? "+" : "";
    const count = Math.round(kept[at]);
    const noun = count === 1 ? "document" : "documents";
    const text = `${value} would keep ${count.toLocaleString("en")} ${noun} ` +
      `(${sign}${change.toLocaleString("en")})`;
    output.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    const x = 8 + (344 * at) / (edges.length - 1);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    line.removeAttribute("visibility");
  };
  slider.addEventListener("input", show);
}
