// Keys: "/" goes to the filter, "[" and "]" turn pages, "u" goes up. Tab reaches everything, too.
"use strict";
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
  if (!["/", "[", "]", "u"].includes(event.key)) return;
  const target = document.querySelector(`[data-key="${event.key}"]`);
  if (!target) return;
  event.preventDefault();
  if (target instanceof HTMLInputElement) target.focus();
  else target.click();
});
