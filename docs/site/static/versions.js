/* A list of the published versions, in the sidebar: the file versions.json beside the folders of all versions. A copy of one
 * version, such as on a disk, has no such file, and no list. */
"use strict";

document.addEventListener("DOMContentLoaded", async () => {
  const root = document.documentElement.dataset.content_root;
  const sidebar = document.querySelector(".sidebar-sticky");
  if (!root || !sidebar || location.protocol === "file:") return;
  const here = new URL(root, location.href);
  const response = await fetch(new URL("../versions.json", here)).catch(() => null);
  if (!response || !response.ok) return;
  const versions = await response.json();

  const current = here.pathname.split("/").filter(Boolean).pop();
  const select = document.createElement("select");
  select.setAttribute("aria-label", "Version of this documentation");
  for (const { name, title } of versions) select.add(new Option(title, name, false, name === current));
  select.addEventListener("change", () => {
    location.href = new URL(`../${select.value}/`, here).href;
  });
  const box = document.createElement("div");
  box.className = "scaler-versions";
  box.append(select);
  sidebar.querySelector(".sidebar-search-container")?.before(box);
});
