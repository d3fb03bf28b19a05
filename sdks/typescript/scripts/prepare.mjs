// Builds `dist` where the package was only cloned. `npm install <folder>` links the folder and installs nothing in it.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const cwd = dirname(dirname(fileURLToPath(import.meta.url)));
const npm = (...args) => execFileSync("npm", args, { cwd, stdio: "inherit", shell: process.platform === "win32" });

// `npm ci` itself runs this script when it is done.
if (existsSync(`${cwd}/node_modules/typescript`)) npm("run", "build");
else npm("ci", "--no-audit", "--no-fund");
