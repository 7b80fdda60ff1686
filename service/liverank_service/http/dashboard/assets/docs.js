// Has /docs follow the theme of the dashboard, before it is painted: see theme.js.

const dark = matchMedia("(prefers-color-scheme: dark)");

function show() {
  let choice = null;
  try {
    choice = localStorage.getItem("liverank-theme");
  } catch {
    // storage is off: as the system has it
  }
  const isDark = choice === "dark" || (choice !== "light" && dark.matches);
  document.documentElement.classList.toggle("dark-mode", isDark);
  document.documentElement.style.colorScheme = isDark ? "dark" : "light";
}

dark.addEventListener("change", show);
addEventListener("storage", show);
show();
