/* Ranks the results of the site's search. Sphinx loads this behind its own searchtools.js (html_search_scorer).
 *
 * Sphinx shows pages that have all words of a query, and ranks them by their best word alone. Users ask in sentences,
 * whose words are of unequal worth, and some of which no page has. So here:
 * - A word counts by how few pages have it; more in the title of a page or of one of its sections.
 * - A page is shown if it has the words that make up most of the query's worth. Words that no page has are ignored.
 * - Pages that solve a task come before those that describe, and these before records of decisions and of changes.
 * - A result leads to the section whose title fits best; a page counts more the more of the query that title has, with
 *   the title of its page.
 * - Words such as "use" and "much" count less.
 * - A word of other engines, or of every day, also finds our word for it in titles: "job" finds "task", "kill" "stop".
 * - Adjacent words that make a name of code count as this name, too: "at most once" finds `at_most_once`.
 */
"use strict";

const FOLDER_WEIGHTS = {
  "tutorial/": 1.1,
  "adr/": 0.5,
  "protocol/": 0.55,
  "benchmarks/": 0.6,
  "packaging/": 0.9,
  "reference/api/": 0.8,
};
const PAGE_WEIGHTS = { changelog: 0.4, situations: 0.6, soak: 0.7, "concepts/glossary": 0.8, index: 0.7 };
const IN_PAGE_TITLE = 3.5;
const IN_SECTION_TITLE = 2;
const FITTING_TITLE = 1; // how much more a page counts if one title has all words of the query
const FOR_A_TASK = 1.35; // how-to pages, if a title has one of the words
const MINIMUM_SHARE = 0.5;
const FEW_PAGES = 8; // a word that fewer pages have counts no more: it may be the reader's, and not that of the right page
const SCALE = 20;
const SYNONYMS = {
  accept: ["admit", "key"],
  block: ["wait", "stuck"],
  capacity: ["limit", "size"],
  computer: ["machine", "host", "worker"],
  crash: ["die", "dead"],
  dag: ["graph"],
  dependencies: ["depend", "graph"],
  environment: ["python", "library"],
  exception: ["error"],
  exit: ["stop", "end"],
  failure: ["error", "die"],
  fast: ["performance"],
  generator: ["iterable", "lazy"],
  hang: ["stuck"],
  hardware: ["requirement", "GPU"],
  java: ["language"],
  job: ["task"],
  kill: ["stop", "cancel"],
  julia: ["language"],
  machine: ["host", "worker"],
  license: ["licence"],
  maximum: ["most", "size"],
  never: ["stuck"],
  node: ["worker", "host"],
  package: ["module"],
  ram: ["memory"],
  remove: ["leave", "drain", "stop"],
  rust: ["language"],
  server: ["scheduler"],
  setup: ["initializer", "start"],
  shut: ["stop", "end"],
  slow: ["performance", "profile"],
  slower: ["performance", "profile"],
  speed: ["performance"],
  venv: ["environment", "python"],
  warm: ["preload", "start"],
  workflow: ["graph"],
};

/** Words that say little about what is asked, and that titles have by chance. */
const VAGUE_WORDS = ["find", "get", "give", "keep", "know", "make", "many", "much", "need", "possible", "take", "use", "want"];
const VAGUE_WEIGHT = 0.4;
let vagueStems = null;
const isVague = (word) => {
  if (vagueStems === null) {
    const stemmer = new Stemmer();
    vagueStems = new Set(VAGUE_WORDS.map((each) => stemmer.stemWord(each)));
  }
  return vagueStems.has(word);
};

const weightOfPage = (name) => {
  if (name in PAGE_WEIGHTS) return PAGE_WEIGHTS[name];
  if (name.endsWith("/index")) return 0.6;
  const folder = Object.keys(FOLDER_WEIGHTS).find((each) => name.startsWith(each));
  return folder ? FOLDER_WEIGHTS[folder] : 1;
};

const listed = (files) => (files === undefined ? [] : Array.isArray(files) ? files : [files]);

const ownEntry = (table, word) => (Object.hasOwn(table, word) ? listed(table[word]) : null);

/** The pages that have a word; if none has it, those that have a longer one. */
const pagesWith = (table, word) => {
  const exact = ownEntry(table, word);
  if (exact || word.length < 4) return new Set(exact || []);
  return new Set(Object.keys(table).filter((each) => each.startsWith(word)).flatMap((each) => listed(table[each])));
};

/** The stems of the words that mean the same, by the stem of a word. */
let synonyms = null;
const synonymsOf = (word) => {
  if (synonyms === null) {
    const stemmer = new Stemmer();
    const stems = (words) => words.map((each) => stemmer.stemWord(each));
    synonyms = new Map(Object.entries(SYNONYMS).map(([each, others]) => [stemmer.stemWord(each), stems(others)]));
  }
  return synonyms.get(word) || [];
};

const stemsOf = (title) => {
  const stemmer = new Stemmer();
  return new Set(splitQuery(title.toLowerCase()).map((word) => stemmer.stemWord(word)));
};

/** The sections of all pages, by page: their titles' words, and their anchors. */
let sections = null;
const sectionsOf = (file) => {
  if (sections === null) {
    sections = new Map();
    for (const [title, places] of Object.entries(Search._index.alltitles))
      for (const [page, anchor] of places) {
        if (!sections.has(page)) sections.set(page, []);
        sections.get(page).push({ title, anchor, stems: stemsOf(title) });
      }
  }
  return sections.get(file) || [];
};

// A browser reads no pages from a disk for the excerpts below results: without this, each result would be an error.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

/** The names of code that adjacent words of a query make, as the index has them. */
const MOST_WORDS_OF_A_NAME = 3;
const namesIn = (query) => {
  const words = splitQuery(query.toLowerCase());
  const stemmer = new Stemmer();
  const names = new Set();
  for (let first = 0; first < words.length; first++)
    for (let end = first + 2; end <= Math.min(first + MOST_WORDS_OF_A_NAME, words.length); end++) {
      const name = stemmer.stemWord(words.slice(first, end).join("_"));
      if (ownEntry(Search._index.terms, name)) names.add(name);
    }
  return names;
};

// The words reach the ranking without their order and without those that are too common, such as "at", "most" and "once".
let names = new Set();
const parseQuery = Search._parseQuery;
Search._parseQuery = (query) => {
  names = namesIn(query);
  return parseQuery(query);
};

Search.performTermsSearch = (searchTerms, excludedTerms) => {
  const { terms, titleterms, docnames, titles, filenames } = Search._index;
  const weighed = (word) => {
    const same = [word, ...synonymsOf(word)];
    const inTitles = new Set(same.flatMap((each) => [...pagesWith(titleterms, each)]));
    const pages = new Set([...pagesWith(terms, word), ...pagesWith(titleterms, word), ...inTitles]);
    const worth = Math.log(1 + docnames.length / Math.max(pages.size, FEW_PAGES));
    return { same, inTitles, pages, weight: worth * (isVague(word) ? VAGUE_WEIGHT : 1) };
  };
  const isIn = (stems, each) => each.same.some((word) => stems.has(word));
  const named = [...names].map(weighed);
  const known = [...searchTerms].map(weighed).filter((each) => each.pages.size > 0);
  const words = known.length ? known : named;
  const worth = words.reduce((sum, each) => sum + each.weight, 0);
  const excluded = new Set([...excludedTerms].flatMap((word) => listed(terms[word])));

  const candidates = new Set(words.flatMap((each) => [...each.pages]));
  const results = [];
  for (const file of candidates) {
    if (excluded.has(file)) continue;
    const here = words.filter((each) => each.pages.has(file));
    const share = here.reduce((sum, each) => sum + each.weight, 0) / worth;
    if (share < MINIMUM_SHARE) continue;
    const inPageTitle = stemsOf(titles[file]);
    const factor = (each) =>
      isIn(inPageTitle, each) ? IN_PAGE_TITLE : each.inTitles.has(file) ? IN_SECTION_TITLE : 1;
    const isForTask = docnames[file].startsWith("how-to/") && here.some((each) => each.inTitles.has(file));
    const sum = here.reduce((found, each) => found + each.weight * factor(each), 0);
    const ofNames = named.reduce((found, each) => found + (each.pages.has(file) ? each.weight : 0), 0);
    const score = ((sum + ofNames) / worth) * (isForTask ? FOR_A_TASK : 1);

    const fitting = (section) =>
      here.reduce((sum, each) => sum + (isIn(section.stems, each) ? each.weight : 0), 0);
    const onPage = (section) =>
      here.reduce((sum, each) => sum + (isIn(section.stems, each) || isIn(inPageTitle, each) ? each.weight : 0), 0);
    const best = sectionsOf(file).reduce(
      (found, each) => (fitting(each) > fitting(found) ? each : found),
      { title: titles[file], anchor: null, stems: inPageTitle },
    );
    const fit = onPage(best) / worth;
    results.push([
      docnames[file],
      best.anchor ? `${titles[file]} > ${best.title}` : titles[file],
      best.anchor ? `#${best.anchor}` : "",
      null,
      SCALE * score * share * share * (1 + FITTING_TITLE * fit * fit),
      filenames[file],
      SearchResultKind.text,
    ]);
  }
  return results;
};

Scorer.score = ([name, , , , score]) => score * weightOfPage(name);
Scorer.objNameMatch = 40; // a query that is the name of a method is about it
