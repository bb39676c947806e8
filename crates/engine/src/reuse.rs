//! Reuses memory from step to step.

/// An empty vector with the memory of another, whose elements may borrow data that no longer exists. The two types must
/// have the same size: then the standard library collects in place, without allocating.
pub(crate) fn recycled<T, U>(mut elements: Vec<T>) -> Vec<U> {
    const { assert!(size_of::<T>() == size_of::<U>() && align_of::<T>() == align_of::<U>()) };
    elements.clear();
    elements.into_iter().map(|_| unreachable!("it is empty")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_stays() {
        let text = String::from("gone soon");
        let mut borrowed: Vec<&str> = Vec::with_capacity(7);
        borrowed.push(&text);
        let place = borrowed.as_ptr().addr();
        let empty: Vec<&'static str> = recycled(borrowed);
        assert_eq!((empty.as_ptr().addr(), empty.capacity(), empty.len()), (place, 7, 0));
    }
}
