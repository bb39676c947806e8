//! Loading progress: how much of a model is in memory.

use std::sync::Arc;

/// A callback for the loaded bytes of a model's weights, and their total.
type Hear = dyn Fn(u64, u64) + Send + Sync;

/// A listener for a model's loading progress, if any.
#[derive(Clone, Default)]
pub struct LoadProgress(Option<Arc<Hear>>);

impl LoadProgress {
    /// Calls `hear` at every whole percent.
    pub fn told_to(hear: impl Fn(u64, u64) + Send + Sync + 'static) -> LoadProgress {
        LoadProgress(Some(Arc::new(hear)))
    }

    /// Listeners for two parts of a model, of this many bytes, which are loaded one after the other.
    #[cfg(any(feature = "cuda", all(test, target_os = "linux")))]
    pub(super) fn divided(&self, n_bytes: [u64; 2]) -> [LoadProgress; 2] {
        let total = n_bytes[0] + n_bytes[1];
        [0, n_bytes[0]].map(|before| {
            let hear = self.0.clone();
            LoadProgress(hear.map(|hear| -> Arc<Hear> { Arc::new(move |done, _| hear(before + done, total)) }))
        })
    }

    /// Begins to load tensors of these sizes.
    pub(super) fn begin(&self, sizes: impl Iterator<Item = usize>) -> LoadedBytes {
        LoadedBytes { progress: self.clone(), done: 0, total: sizes.map(|size| size as u64).sum() }
    }
}

/// Counts the loaded bytes.
pub(super) struct LoadedBytes {
    progress: LoadProgress,
    done: u64,
    total: u64,
}

impl LoadedBytes {
    /// Another tensor of this size has been loaded.
    pub(super) fn add(&mut self, n_bytes: usize) {
        let before = self.percent();
        self.done += n_bytes as u64;
        if let Some(hear) = self.progress.0.as_ref().filter(|_| self.percent() > before) {
            hear(self.done, self.total);
        }
    }

    fn percent(&self) -> u64 {
        (100 * self.done).checked_div(self.total).unwrap_or(100)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_whole_per_cent_is_told_once() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&heard);
        let progress = LoadProgress::told_to(move |done, total| told.lock().unwrap().push((done, total)));
        let mut loaded = progress.begin([5, 1, 194, 200, 0].into_iter());
        [5, 1, 194, 200, 0].into_iter().for_each(|size| loaded.add(size));
        assert_eq!(*heard.lock().unwrap(), [(5, 400), (200, 400), (400, 400)]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn two_parts_are_told_as_one() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&heard);
        let progress = LoadProgress::told_to(move |done, total| told.lock().unwrap().push((done, total)));
        for (part, sizes) in progress.divided([30, 10]).iter().zip([vec![10, 20], vec![10]]) {
            let mut loaded = part.begin(sizes.iter().copied());
            sizes.into_iter().for_each(|size| loaded.add(size));
        }
        assert_eq!(*heard.lock().unwrap(), [(10, 40), (30, 40), (40, 40)]);
    }
}
