// Shows one view of a payload at a time: opening the hex dump closes the text, and the other way round.
"use strict";
for (const payload of document.querySelectorAll("[data-payload]")) {
  const views = [...payload.querySelectorAll("details")];
  for (const view of views) {
    view.addEventListener("toggle", () => {
      if (view.open) for (const other of views) if (other !== view) other.open = false;
    });
  }
}
