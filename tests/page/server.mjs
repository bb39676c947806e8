// A server of its own: the real binary with the real built-in model, in a home that holds nothing else.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const MODEL = "smollm2:135m";

/** A home with the built-in model in it, or without one. */
export class Home {
  constructor({ hone, model }) {
    this.hone = hone;
    this.folder = mkdtempSync(join(tmpdir(), "hone-page-"));
    mkdirSync(join(this.folder, "config"));
    if (model) this.run("pull", model, "--name", MODEL);
  }

  run(...given) {
    return execFileSync(this.hone, given, {
      env: this.environment(),
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  }

  environment(more = {}) {
    const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("HONE_"));
    const own = {
      HONE_HOME: join(this.folder, "data"),
      HONE_CONFIG: join(this.folder, "config"),
      HONE_OFFLINE: "1",
      // The same answers every time, none of which is very long.
      HONE_SAMPLING_SEED: "7",
      HONE_SAMPLING_MAX_TOKENS: "400",
    };
    return { ...Object.fromEntries(inherited), ...own, ...more };
  }

  /** Starts a worker that answers, and waits until it works. */
  async work(bus) {
    const process = spawn(this.hone, ["worker", "--roles", "generate", "--model", MODEL, "--bus", bus], {
      env: this.environment(),
      stdio: ["ignore", "inherit", "pipe"],
    });
    for await (const line of createInterface(process.stderr)) {
      if (line.includes("Ctrl-C ends it")) return new Served(process, bus);
    }
    throw new Error("hone worker ended before it worked");
  }

  /** Starts a server and waits until it listens. */
  async serve(more = {}) {
    const process = spawn(this.hone, ["serve", "--listen", "127.0.0.1:0"], {
      env: this.environment(more),
      stdio: ["ignore", "pipe", "inherit"],
    });
    for await (const line of createInterface(process.stdout)) {
      const address = line.match(/^hone serves on (http:\S+)$/)?.[1];
      if (address) return new Served(process, address);
    }
    throw new Error("hone serve ended before it listened");
  }

  remove() {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Starts a NATS server and waits until it listens. */
export async function startNats(program) {
  const folder = mkdtempSync(join(tmpdir(), "hone-page-nats-"));
  const process = spawn(program, ["--jetstream", "--addr", "127.0.0.1", "--port", "-1", "--store_dir", folder], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  for await (const line of createInterface(process.stderr)) {
    const address = line.match(/Listening for client connections on (127\S+)/)?.[1];
    if (address) return new Served(process, `nats://${address}`);
  }
  throw new Error("nats-server ended before it listened");
}

class Served {
  constructor(process, address) {
    Object.assign(this, { process, address });
  }

  async stop() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGTERM");
    await ended;
  }
}
