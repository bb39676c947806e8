//! Subjects and mailboxes through which agents talk.
