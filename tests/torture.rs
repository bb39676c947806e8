//! What must not happen, tried on the real binary: processes killed at any moment, disks that fill up, bits that flip,
//! clocks that jump, many processes at once. Whatever is done to it, hone ends by itself with an exit code and a
//! message, loses nothing that it acknowledged, and keeps nothing twice.
//!
//! Every ordeal goes on for `HONE_TORTURE_SECONDS` (20 without it, as in `scripts/check.sh torture`; `scripts/test.sh torture`
//! takes an hour for all) and draws from the seed `HONE_TORTURE_SEED`. What was done is counted, and written as lines of JSON to
//! the file that `HONE_TORTURE_REPORT` names.

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
