/**
 * The pages there are, in the order of the navigation and of the keys 1 to 9.
 *
 * Rule: this is the only list of them.
 */

import { openActors, openClients, openFunctions, openGraphs, openObjects } from "./pages/lists.js";
import { openOverview } from "./pages/overview.js";
import { openStream } from "./pages/stream.js";
import { openTask } from "./pages/task.js";
import { openTasks } from "./pages/tasks.js";
import { openWorkers } from "./pages/workers.js";

/**
 * @typedef {import("./main.js").Context} Context
 * @typedef {import("./main.js").Page} Page
 * @typedef {{title: string, icon: string, tab?: string, open: (context: Context, where: import("./route.js").Route) => Page}} Entry
 */

/** @type {Record<string, Entry>} */
export const PAGES = {
  overview: { title: "Overview", icon: "M2 13V8M6 13V3M10 13V6M14 13v-3", open: openOverview },
  stream: { title: "Task stream", icon: "M1 4h7M10 4h5M1 8h4M7 8h8M1 12h9M12 12h3", open: openStream },
  workers: { title: "Workers", icon: "M2 3h12v4H2zM2 9h12v4H2zM4.5 5h1M4.5 11h1", open: openWorkers },
  tasks: { title: "Tasks", icon: "M2 4l1 1 2-2M8 4h6M2 8l1 1 2-2M8 8h6M2 12l1 1 2-2M8 12h6", open: openTasks },
  functions: { title: "Functions", icon: "M11 3c-2 0-2.5 1-2.8 3L7 11c-.4 2-1 3-3 3M5 7.5h6", open: openFunctions },
  clients: { title: "Clients", icon: "M8 8a2.5 2.5 0 100-5 2.5 2.5 0 000 5zM3 14c0-3 2-4.500 5-4.500s5 1.500 5 4.500", open: openClients },
  objects: { title: "Objects", icon: "M8 1.500l6 3v7l-6 3-6-3v-7zM2 4.500l6 3 6-3M8 7.500v7", open: openObjects },
  graphs: { title: "Graphs", icon: "M3 3h3v3H3zM10 3h3v3h-3zM6.500 11h3v3h-3zM4.500 6v2h7V6M8 8v3", open: openGraphs },
  actors: { title: "Actors", icon: "M3 6h10v7H3zM8 6V3M8 3h.01M6 9h.01M10 9h.01M1 9v2M15 9v2", open: openActors },
  task: { title: "Task", icon: "", tab: "tasks", open: openTask },
};

/** Those of the navigation. */
export const TABS = Object.keys(PAGES).filter((name) => !PAGES[name].tab);
