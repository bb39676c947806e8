// Finds what keeps JavaScript files from being loaded, without running them: syntax errors, and files of the workspace that are imported
// and do not exist. The arguments are the changed files. Prints the findings in the form of `ruff check --output-format=json`.

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

const IMPORTED = /^\s*(?:import|export)\b[^"'`;]*?["'](\.{1,2}\/[^"']+\.(?:m|c)?js)["']/gm;
// What is compiled before it runs may have a syntax of its own.
const IS_COMPILED = /react|babel|flow|jsx|vite|webpack|next|solid|svelte|vue/i;
const isCompiled = existsSync("package.json") && IS_COMPILED.test(readFileSync("package.json", "utf8"));
const findings = [];
const report = (filename, row, message) => findings.push({ filename, location: { row }, code: null, message });

for (const file of process.argv.slice(1)) {
  if (!existsSync(file) || (isCompiled && file.endsWith(".js"))) continue;
  const { status, stderr } = spawnSync(process.execPath, ["--check", "--", file], { encoding: "utf8" });
  if (status !== 0) {
    const row = Number(/:(\d+)\s*$/m.exec(stderr)?.[1] ?? 1);
    report(file, row, /^\w*Error: .*$/m.exec(stderr)?.[0] ?? "it cannot be parsed");
    continue;
  }
  const text = readFileSync(file, "utf8");
  for (const { 1: wanted, index } of text.matchAll(IMPORTED)) {
    if (existsSync(join(dirname(file), wanted))) continue;
    report(file, text.slice(0, index).split("\n").length, `Cannot find module '${wanted}'`);
  }
}
console.log(JSON.stringify(findings));
