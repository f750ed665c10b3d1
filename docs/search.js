// Asks the index of a site, as a browser does: `node search.js SITE QUERY...` prints the addresses that are found first.
const fs = require("fs");
const path = require("path");

const [site, ...queries] = process.argv.slice(2);
const workers = path.join(site, "assets", "javascripts", "workers");
const [file] = fs.readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));

let hear;
globalThis.self = { postMessage: (message) => hear(message) };
require(path.resolve(workers, file));

function said(message) {
  return new Promise((resolve) => {
    hear = resolve;
    self.onmessage({ data: message });
  });
}

(async () => {
  const index = JSON.parse(fs.readFileSync(path.join(site, "search.json"), "utf8"));
  await said({ type: 0, data: index });
  const found = {};
  for (const query of queries) {
    const { data } = await said({ type: 2, data: { input: query } });
    found[query] = data.items.map(({ id }) => index.items[id].location);
  }
  process.stdout.write(JSON.stringify(found));
})();
