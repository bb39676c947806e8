#!/usr/bin/env node
// Starts the program from the package that npm has installed for this system (hone-linux-x64 and so on), and ends as it ends.
// Nothing runs while the packages are installed.
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');

// As a shell does for a program that cannot be started.
const CANNOT_START = 126;
const SIGNALS = ['SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGHUP'];
// A terminal sends these to the program, too.
const SIGNALS_OF_TERMINAL = ['SIGINT', 'SIGQUIT'];

function fail(message) {
    console.error(`hone: ${message}`);
    process.exit(CANNOT_START);
}

function findProgram() {
    const name = `hone-${process.platform}-${process.arch}`;
    const file = process.platform === 'win32' ? 'hone.exe' : 'hone';
    try {
        return require.resolve(`${name}/bin/${file}`);
    } catch {
        const known = Object.keys(require('./package.json').optionalDependencies);
        const why = known.includes(name)
            ? 'install hone again, without --omit=optional'
            : `hone is packaged for ${known.map((each) => each.slice('hone-'.length)).join(', ')}`;
        return fail(`the package ${name} is missing: ${why}`);
    }
}

function hasTerminal() {
    if (process.platform === 'win32') return true;
    try {
        fs.closeSync(fs.openSync('/dev/tty', 'r'));
        return true;
    } catch {
        return false;
    }
}

const path = findProgram();
// Signals are handed on, and the program decides what they mean. A second Ctrl-C can mean more than the first, so a terminal's is
// not sent again. The handlers are there before the program is, so that no signal ends this process and leaves the program running.
const sent = hasTerminal() ? SIGNALS_OF_TERMINAL : [];
for (const signal of SIGNALS) {
    process.on(signal, () => sent.includes(signal) || program.kill(signal));
}
const program = spawn(path, process.argv.slice(2), { stdio: 'inherit' });
program.on('error', (error) => fail(`${path} does not start: ${error.message}`));
program.on('exit', (status, signal) => {
    if (signal === null) process.exit(status);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
});
