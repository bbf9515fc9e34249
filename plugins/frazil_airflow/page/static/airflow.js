// Links to Airflow's own pages. Airflow shows this page in a frame, whose sandbox forbids to open another address in the window.
// So these links tell Airflow's router to do it, with the same event as the browser's back button.
"use strict";
const openInAirflow = (address) => {
  if (window.parent === window) {
    window.location.assign(address);
    return;
  }
  window.parent.history.pushState({}, "", address);
  window.parent.dispatchEvent(new window.parent.PopStateEvent("popstate", { state: {} }));
};

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element && event.target.closest("a[data-airflow]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  openInAirflow(link.getAttribute("href"));
});
