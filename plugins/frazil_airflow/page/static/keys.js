// Keys: "/" goes to the filter, "[" and "]" turn pages, "u" goes up. Everything is reached by Tab, too.
"use strict";
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
  if (!["/", "[", "]", "u"].includes(event.key)) return;
  const found = document.querySelector(`[data-key="${event.key}"]`);
  if (!found) return;
  event.preventDefault();
  if (found instanceof HTMLInputElement) found.focus();
  else found.click();
});
