//! Reads as much of sled's log as is intact, without sled.
//!
//! If sled finds a damaged message, it gives up the database, or takes the damage for the end of the log and overwrites
//! everything that follows. Yet every message has its own checksum, and most of a damaged message's contents are
//! repeated in others. This reader goes over the segments of the log in the order in which they were written, applies
//! every intact message to its page, as sled does, and skips the others.
//!
//! The format is that of sled 0.34, whose version is pinned. Segments have a fixed size; each has a header (checksum,
//! position in the log), followed by messages. A message has a checksum, a kind, a length, the numbers of its segment
//! and its page, and a body, which is a page (a node of the tree) or a change to one. Bodies that are too long are in
//! separate files. The reader trusts nothing that it reads: it allocates no more than the files have bytes, and never
//! panics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes that sled's log grows by. sled puts pages larger than a quarter of it into separate files, which with its
/// default of 512 KiB would happen to a page of sixteen long answers.
pub(super) const SEGMENT_BYTES: usize = 2 << 20;

/// The page size at which a write is cut off if its process is killed.
const SYSTEM_PAGE_BYTES: usize = 4096;

/// Bytes in a segment's header.
const SEGMENT_HEADER: usize = 20;

/// The longest header of a message; sled starts no message that would not fit.
const LONGEST_HEADER: usize = 32;

/// The position of the kind in a message, behind its checksum.
const KIND_AT: usize = 4;

/// Unwritten space is skipped in blocks of this length.
const ZEROS: [u8; 512] = [0; 512];

/// The contents of a log.
#[derive(Debug, Default)]
pub(crate) struct LogContent {
    /// Keys, as far as they are known, and values, oldest first.
    pub(crate) records: Vec<Record>,
    /// Keys that were removed and not written again.
    pub(crate) removed: Vec<Vec<u8>>,
    /// The number of unreadable places.
    pub(crate) n_damaged: u64,
}

/// A value in the log.
#[derive(Debug, PartialEq)]
pub(crate) struct Record {
    /// Its key; `None` if the page that holds the key's prefix is lost.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Vec<u8>,
    /// The time of its write, as a position in the log.
    written: u64,
}

/// Kinds of messages, by sled's numbers; unwritten space is zeros.
mod kind {
    pub(super) const CAP: u8 = 2;
    pub(super) const FREE: u8 = 4;
    pub(super) const NODE: u8 = 8;
    pub(super) const BLOB_NODE: u8 = 9;
    pub(super) const LINK: u8 = 10;
    pub(super) const BLOB_LINK: u8 = 11;
}

struct Message<'a> {
    kind: u8,
    segment: u64,
    page: u64,
    body: &'a [u8],
    /// Bytes of header and body.
    length: usize,
}

/// A page of the tree while the log is read.
#[derive(Default)]
struct Page {
    /// The common prefix of its keys; `None` until the whole page has been read.
    prefix: Option<Vec<u8>>,
    /// Suffixes of keys, their values, and the positions of their writes.
    items: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
}

/// Reads the log in storage's folder.
///
/// # Errors
/// When the file cannot be read at all.
pub(crate) fn read(folder: &Path) -> io::Result<LogContent> {
    let mut file = File::open(folder.join("db"))?;
    let mut segments = Vec::new();
    for place in 0..n_segments(&file)? {
        segments.extend(number_of_segment(&read_segment(&mut file, place)?).map(|number| (number, place)));
    }
    segments.sort_unstable();
    let mut reading = Reading { folder, pages: BTreeMap::new(), removed: BTreeMap::new(), n_damaged: 0 };
    let last = segments.last().map(|(number, _)| *number);
    for (number, place) in segments {
        let bytes = read_segment(&mut file, place)?;
        let mut messages = Messages::new(&bytes, number);
        while let Some((at, message)) = messages.next() {
            reading.apply(&message, number * SEGMENT_BYTES as u64 + at as u64);
        }
        reading.n_damaged += messages.n_gaps + u64::from(!messages.is_closed && Some(number) != last);
    }
    Ok(reading.finish())
}

/// Counts the places in the log after a position that are certainly damaged: an intact message follows them, so they
/// are not the end of the log.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn count_damage(folder: &Path, from: u64) -> io::Result<u64> {
    let mut file = File::open(folder.join("db"))?;
    let first = from / SEGMENT_BYTES as u64;
    let mut n_damaged = 0;
    for place in 0..n_segments(&file)? {
        let mut header = [0; SEGMENT_HEADER];
        file.seek(SeekFrom::Start(place * SEGMENT_BYTES as u64))?;
        let is_whole = file.read_exact(&mut header).is_ok();
        // A segment whose header says that it is older can be skipped.
        if is_whole && position_in_header(&header).is_some_and(|position| position / (SEGMENT_BYTES as u64) < first) {
            continue;
        }
        let bytes = read_segment(&mut file, place)?;
        let Some(number) = number_of_segment(&bytes).filter(|number| *number >= first) else { continue };
        n_damaged += u64::from(position_in_header(&bytes).is_none() && !is_unfinished(&bytes, 0, SEGMENT_HEADER));
        let mut messages = Messages::new(&bytes, number);
        while let Some((_, message)) = messages.next() {
            // sled also takes a damaged long body for the end of the log.
            let is_long = matches!(message.kind, kind::BLOB_NODE | kind::BLOB_LINK);
            n_damaged += u64::from(is_long && read_long(folder, &message).is_none());
        }
        n_damaged += messages.n_gaps;
    }
    Ok(n_damaged)
}

fn n_segments(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len().div_ceil(SEGMENT_BYTES as u64))
}

fn read_segment(file: &mut File, place: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(place * SEGMENT_BYTES as u64))?;
    file.take(SEGMENT_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The number of a segment in the log; if its header is damaged, the number in its messages.
fn number_of_segment(bytes: &[u8]) -> Option<u64> {
    match position_in_header(bytes) {
        Some(position) => Some(position / SEGMENT_BYTES as u64),
        None => {
            let places = SEGMENT_HEADER..bytes.len();
            places
                .filter_map(|at| message_at(bytes, at))
                .map(|message| message.segment)
                .find(|number| *number < 1 << 40)
        }
    }
}

fn position_in_header(bytes: &[u8]) -> Option<u64> {
    const INVERTED: u64 = 0x7FFF_FFFF_FFFF_FFFF;
    let header = bytes.first_chunk::<SEGMENT_HEADER>()?;
    let (sum, rest) = header.split_first_chunk::<4>()?;
    let position = u64::from_le_bytes(*rest.first_chunk::<8>()?) ^ INVERTED;
    let is_whole = crc32fast::hash(rest) == u32::from_le_bytes(*sum) ^ u32::MAX;
    (is_whole && position < 1 << 62 && position.is_multiple_of(SEGMENT_BYTES as u64)).then_some(position)
}

/// The intact messages of a segment.
struct Messages<'a> {
    bytes: &'a [u8],
    number: u64,
    at: usize,
    /// The number of damaged places before an intact message.
    n_gaps: u64,
    /// Whether sled has filled the segment.
    is_closed: bool,
}

impl<'a> Messages<'a> {
    fn new(bytes: &'a [u8], number: u64) -> Messages<'a> {
        Messages { bytes, number, at: SEGMENT_HEADER, n_gaps: 0, is_closed: false }
    }

    /// The next message and its position.
    fn next(&mut self) -> Option<(usize, Message<'a>)> {
        let (bytes, number) = (self.bytes, self.number);
        let whole = |at: usize| message_at(bytes, at).filter(|message| message.segment == number);
        let expected = self.at;
        let mut places = std::iter::successors(Some(expected), |at| Some(next_place(bytes, at + 1)));
        let found = places.by_ref().take_while(|at| *at < bytes.len()).find_map(|at| Some((at, whole(at)?)));
        match &found {
            Some((at, message)) => {
                self.n_gaps += u64::from(!is_unfinished(bytes, expected, *at));
                self.at = at + message.length;
                self.is_closed = message.kind == kind::CAP || self.at + LONGEST_HEADER > SEGMENT_BYTES;
            }
            None => self.at = bytes.len(),
        }
        found
    }
}

/// Whether the bytes between two positions are only the unfinished writes of a killed process. sled writes from several
/// threads into segments of zeros, so a later write can be there although an earlier one is missing, or is there only
/// up to a page of the operating system. None of these writes was acknowledged, and sled takes them for the end of the
/// log.
fn is_unfinished(bytes: &[u8], start: usize, end: usize) -> bool {
    let written = start + without_trailing_zeros(&bytes[start..end]).len();
    written == start || written.next_multiple_of(SYSTEM_PAGE_BYTES) < end
}

/// The first position from `at` on at which a message may begin: its kind is not zero, as unwritten space is.
fn next_place(bytes: &[u8], at: usize) -> usize {
    let kinds = bytes.get(at + KIND_AT..).unwrap_or_default();
    let n_blocks = kinds.chunks_exact(ZEROS.len()).take_while(|block| *block == ZEROS).count();
    let skipped = n_blocks * ZEROS.len();
    let written = kinds[skipped..].iter().position(|byte| *byte != 0);
    written.map_or(bytes.len(), |place| at + skipped + place)
}

/// The bytes up to the last that was written.
fn without_trailing_zeros(bytes: &[u8]) -> &[u8] {
    let n_blocks = bytes.rchunks_exact(ZEROS.len()).take_while(|block| *block == ZEROS).count();
    let rest = &bytes[..bytes.len() - n_blocks * ZEROS.len()];
    rest.iter().rposition(|byte| *byte != 0).map_or(&[], |last| &rest[..=last])
}

/// The message at this position, if it is intact.
fn message_at(bytes: &[u8], at: usize) -> Option<Message<'_>> {
    let begin = bytes.get(at..)?;
    let kind = *begin.get(KIND_AT)?;
    if !(1..=kind::BLOB_LINK).contains(&kind) {
        return None;
    }
    let mut rest = begin.get(KIND_AT + 1..)?;
    let [length, segment, page] = [number(&mut rest)?, number(&mut rest)?, number(&mut rest)?];
    let body = rest.get(..usize::try_from(length).ok()?)?;
    let header = &begin[..begin.len() - rest.len()];
    let mut sum = crc32fast::Hasher::new();
    sum.update(body);
    sum.update(&header[4..]);
    let is_whole = sum.finalize() ^ u32::MAX == u32::from_le_bytes(*header.first_chunk::<4>()?);
    is_whole.then_some(Message { kind, segment, page, body, length: header.len() + body.len() })
}

struct Reading<'a> {
    folder: &'a Path,
    pages: BTreeMap<u64, Page>,
    /// Removed keys and the positions of their removal: a page that is damaged later may still hold them.
    removed: BTreeMap<Vec<u8>, u64>,
    n_damaged: u64,
}

impl Reading<'_> {
    fn apply(&mut self, message: &Message<'_>, position: u64) {
        let long;
        let body = match message.kind {
            kind::BLOB_NODE | kind::BLOB_LINK => {
                long = read_long(self.folder, message);
                long.as_deref()
            }
            _ => Some(message.body),
        };
        let applied = match (message.kind, body) {
            (kind::FREE, _) => {
                self.pages.remove(&message.page);
                Some(())
            }
            (kind::NODE | kind::BLOB_NODE, Some(body)) => self.replace(message.page, body, position),
            (kind::LINK | kind::BLOB_LINK, Some(body)) => self.change(message.page, body, position),
            (kind::BLOB_NODE | kind::BLOB_LINK, None) => None,
            _ => Some(()),
        };
        self.n_damaged += u64::from(applied.is_none());
    }

    fn replace(&mut self, page: u64, mut body: &[u8], position: u64) -> Option<()> {
        if body.is_empty() {
            return Some(());
        }
        let node = &mut body;
        let (_next, _merging_child) = (number(node)?, number(node)?);
        let (_merging, prefix_length) = (byte(node)?, byte(node)?);
        let (low, _high) = (bytes(node)?, bytes(node)?);
        let prefix = low.get(..usize::from(prefix_length))?.to_vec();
        let is_leaf = byte(node)? == 0;
        let n_items = number(node)?;
        let mut items = BTreeMap::new();
        if is_leaf {
            // There cannot be more keys than bytes.
            let keys = (0..n_items).map(|_| bytes(node)).collect::<Option<Vec<_>>>()?;
            for key in keys {
                items.insert(key.to_vec(), (bytes(node)?.to_vec(), position));
            }
        }
        self.pages.insert(page, Page { prefix: Some(prefix), items });
        Some(())
    }

    fn change(&mut self, page: u64, mut body: &[u8], position: u64) -> Option<()> {
        if body.is_empty() {
            return Some(());
        }
        let link = &mut body;
        let page = self.pages.entry(page).or_default();
        match byte(link)? {
            0 => {
                let (key, value) = (bytes(link)?, bytes(link)?);
                page.items.insert(key.to_vec(), (value.to_vec(), position));
            }
            1 => {
                let key = bytes(link)?;
                page.items.remove(key);
                if let Some(prefix) = &page.prefix {
                    self.removed.insert([prefix.as_slice(), key].concat(), position);
                }
            }
            _ => {}
        }
        Some(())
    }

    fn finish(self) -> LogContent {
        let Reading { pages, removed, n_damaged, .. } = self;
        let records = pages.into_values().flat_map(|Page { prefix, items }| {
            items.into_iter().map(move |(end, (value, written))| {
                let key = prefix.as_ref().map(|prefix| [prefix.as_slice(), &end].concat());
                Record { key, value, written }
            })
        });
        let is_removed = |record: &Record| {
            record.key.as_ref().and_then(|key| removed.get(key)).is_some_and(|removed| *removed > record.written)
        };
        let mut records: Vec<Record> = records.filter(|record| !is_removed(record)).collect();
        records.sort_by_key(|record| record.written);
        let there: BTreeSet<&[u8]> = records.iter().filter_map(|record| record.key.as_deref()).collect();
        let removed = removed.into_keys().filter(|key| !there.contains(key.as_slice())).collect();
        LogContent { records, removed, n_damaged }
    }
}

/// The body of a message in a separate file; empty if the file was removed because the value was replaced.
fn read_long(folder: &Path, message: &Message<'_>) -> Option<Vec<u8>> {
    let name = u64::from_le_bytes(*message.body.first_chunk::<8>()?).to_string();
    let Ok(bytes) = fs::read(folder.join("blobs").join(name)) else { return Some(Vec::new()) };
    let (sum, rest) = bytes.split_first_chunk::<4>()?;
    let (kind, body) = rest.split_first()?;
    let is_whole = crc32fast::hash(rest) == u32::from_le_bytes(*sum) && *kind == message.kind;
    is_whole.then(|| body.to_vec())
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

fn bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(bytes)?).ok()?;
    let (read, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(read)
}

/// An integer of variable length: up to 240 in one byte, up to 67 823 in three, others in as many as the first byte
/// says.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let first = byte(bytes)?;
    Some(match first {
        0..=240 => u64::from(first),
        241..=248 => 240 + 256 * (u64::from(first) - 241) + u64::from(byte(bytes)?),
        249 => 2288 + 256 * u64::from(byte(bytes)?) + u64::from(byte(bytes)?),
        250..=255 => {
            let (read, rest) = bytes.split_at_checked(usize::from(first) - 247)?;
            *bytes = rest;
            let mut number = [0; 8];
            number[..read.len()].copy_from_slice(read);
            u64::from_le_bytes(number)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Batch, DiskStorage, Storage};

    /// Storage with these pairs, each of a different size; some were replaced, and some removed.
    fn filled(folder: &Path, n_pairs: u32) {
        let storage = DiskStorage::open(folder, 0).unwrap();
        let apply = |batch: Batch| {
            storage.begin().unwrap().apply(batch, &[]).unwrap();
            storage.flush().unwrap();
        };
        for number in 0..n_pairs {
            let mut batch = Batch::default();
            batch.insert(key(number), b"replaced".to_vec());
            apply(batch);
            let mut batch = Batch::default();
            batch.insert(key(number), value(number));
            if number % 7 == 3 {
                batch.remove(key(number - 2));
            }
            apply(batch);
        }
    }

    fn key(number: u32) -> Vec<u8> {
        [b"e".as_slice(), &[0; 12], &number.to_be_bytes()].concat()
    }

    fn value(number: u32) -> Vec<u8> {
        let length = if number % 50 == 9 { 700_000 } else { 20 + number as usize * 7 % 3000 };
        number.to_be_bytes().iter().copied().cycle().take(length).collect()
    }

    fn expected(n_pairs: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let is_removed = |number: &u32| number % 7 == 1 && number + 2 < n_pairs;
        (0..n_pairs).filter(|number| !is_removed(number)).map(|number| (key(number), value(number))).collect()
    }

    fn found(content: &LogContent) -> BTreeMap<Vec<u8>, Vec<u8>> {
        content.records.iter().map(|record| (record.key.clone().unwrap(), record.value.clone())).collect()
    }

    #[test]
    fn a_whole_log_is_read_as_sled_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        filled(&store, 1200);
        assert!(fs::metadata(store.join("db")).unwrap().len() > 3 * SEGMENT_BYTES as u64, "more than one segment");
        let content = read(&store).unwrap();
        assert_eq!(content.n_damaged, 0);
        assert!(found(&content) == expected(1200));
        assert_eq!(count_damage(&store, 0).unwrap(), 0);
    }

    #[test]
    fn a_damaged_place_costs_what_stands_there_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        filled(&store, 100);
        let whole = fs::read(store.join("db")).unwrap();
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
        let expected = expected(100);
        for at in (0..end - 5000).step_by(977) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(store.join("db"), damaged).unwrap();
            let content = read(&store).unwrap();
            let kept = found(&content);
            let n_lost = expected.iter().filter(|(key, value)| kept.get(*key) != Some(value)).count();
            // A rewritten page is also earlier in the log, with all its later changes, unless sled has reused that
            // space.
            assert!(n_lost <= 1, "{n_lost} records are lost with byte {at}");
            assert!(count_damage(&store, 0).unwrap() > 0, "byte {at}");
        }
    }

    #[test]
    fn a_write_that_was_not_finished_is_no_damage() {
        let mut bytes = vec![0; 3 * SYSTEM_PAGE_BYTES];
        assert!(is_unfinished(&bytes, 10, 10) && is_unfinished(&bytes, 10, 5000));
        bytes[10..SYSTEM_PAGE_BYTES].fill(7);
        assert!(is_unfinished(&bytes, 10, 5000) && !is_unfinished(&bytes, 10, SYSTEM_PAGE_BYTES));
        assert!(!is_unfinished(&bytes, 10, 4000));
    }

    #[test]
    fn unwritten_space_is_passed_over() {
        let mut bytes = vec![0; 2000];
        assert_eq!((next_place(&bytes, 7), without_trailing_zeros(&bytes).len()), (2000, 0));
        for written in [5, 516, 1029, 1999] {
            bytes.fill(0);
            bytes[written] = 8;
            for at in [0, 1, 500, written - KIND_AT] {
                let place = if at > written - KIND_AT { 2000 } else { written - KIND_AT };
                assert_eq!(next_place(&bytes, at), place, "{written} from {at}");
            }
            assert_eq!(without_trailing_zeros(&bytes).len(), written + 1);
        }
        assert_eq!(next_place(&bytes, 1998), 2000);
    }

    #[test]
    fn numbers_are_read_as_sled_writes_them() {
        let check = |mut bytes: &[u8], expected: Option<u64>| assert_eq!(number(&mut bytes), expected, "{bytes:?}");
        check(&[], None);
        check(&[240], Some(240));
        check(&[241, 1], Some(241));
        check(&[248, 255], Some(2287));
        check(&[249, 0, 0], Some(2288));
        check(&[250, 1, 2], None);
        check(&[250, 1, 2, 3], Some(0x03_02_01));
        check(&[255, 1, 0, 0, 0, 0, 0, 0, 1], Some(0x0100_0000_0000_0001));
    }
}
