//! Stress tests of the real binary: processes killed at any moment, disks that fill up, bits that flip, clocks that
//! jump, many processes at once. Whatever happens, hone ends by itself with an exit code and a message, loses nothing
//! that it acknowledged, and keeps nothing twice.
//!
//! Every ordeal runs for `HONE_TORTURE_SECONDS` (20 by default, as in `scripts/check.sh torture`;
//! `scripts/test.sh torture` takes an hour for all) and draws from the seed `HONE_TORTURE_SEED`. The actions are
//! counted, and written as lines of JSON to the file named by `HONE_TORTURE_REPORT`.

mod clocks;
mod crowd;
mod fleet;
mod flips;
mod full_disk;
mod kills;
mod ordeal;
mod power;
mod remembered;
mod servers;
mod writers;
