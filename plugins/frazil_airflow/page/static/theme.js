// Airflow keeps the user's theme in localStorage under "theme": light, dark or system. This page has the same origin and follows it.
"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return window.localStorage.getItem("theme");
    } catch {
      return null; // the browser forbids storage
    }
  };
  const apply = () => {
    const choice = chosen();
    const isDark = choice === "dark" || (choice !== "light" && dark.matches);
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    window.dispatchEvent(new Event("themechange"));
  };
  window.addEventListener("storage", (event) => event.key === "theme" && apply());
  dark.addEventListener("change", apply);
  apply();
})();
