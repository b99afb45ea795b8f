/* Asks the search of a built site, without a browser: its own index, and its own scripts.
 *
 *   node search.js SITE < QUESTIONS > ANSWERS      a question in each line; a JSON array of [page, title, score] for each
 *
 * Only what the scripts need of a document is here; what they compute is theirs.
 */
"use strict";

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const read = (...names) => fs.readFileSync(path.join(site, ...names), "utf8");

const nothing = () => null;
const sandbox = {
  console,
  URLSearchParams,
  SPHINX_HIGHLIGHT_ENABLED: false,
  DOCUMENTATION_OPTIONS: {},
  location: { protocol: "https:" },
  _ready: nothing, // searchtools.js would begin with what is in the address
  _: (text) => text, // translations
  document: { getElementById: nothing, querySelectorAll: () => [], addEventListener: nothing },
};
sandbox.window = sandbox;
const context = vm.createContext(sandbox);
for (const name of ["searchtools.js", "language_data.js"]) vm.runInContext(read("_static", name), context, { filename: name });
vm.runInContext(read("searchindex.js"), context, { filename: "searchindex.js" });

for (const question of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  sandbox.question = question;
  const results = vm.runInContext(
    "(() => { const [query, ...terms] = Search._parseQuery(question); return Search._performSearch(query, ...terms); })()",
    context,
  );
  // The site shows the last one first.
  console.log(JSON.stringify(results.reverse().slice(0, 10).map(([page, title, anchor, , score]) => [page + anchor, title, score])));
}
