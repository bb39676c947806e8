//! The route of a job to the workers that can do it: its kind, and the model that it needs.

use std::fmt::Write;

/// The urgency of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A caller waits for it.
    Now,
    /// Whenever there is time.
    Later,
}

impl Urgency {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Urgency::Now => "now",
            Urgency::Later => "later",
        }
    }
}

/// A kind of work, with the model that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    role: &'static str,
    /// The model's name as a part of a subject.
    model: Option<String>,
}

impl Route {
    /// Work that every worker of a role can do.
    pub fn of_role(role: &'static str) -> Route {
        Route { role, model: None }
    }

    /// Work for workers that have the model of this name.
    pub fn to_model(role: &'static str, model: &str) -> Route {
        Route { role, model: Some(subject_part(model)) }
    }

    pub(crate) fn role(&self) -> &'static str {
        self.role
    }

    pub(crate) fn subject(&self, urgency: Urgency) -> String {
        format!("hone.work.{}.{}", self.joined('.'), urgency.as_str())
    }

    /// The name of the consumer that all workers of this route share.
    pub(crate) fn consumer(&self, urgency: Urgency) -> String {
        format!("{}-{}", self.joined('-'), urgency.as_str())
    }

    fn joined(&self, separator: char) -> String {
        match &self.model {
            Some(model) => format!("{}{separator}{model}", self.role),
            None => self.role.to_owned(),
        }
    }
}

/// A name as part of a subject and of a consumer's name: letters, digits and `-` unchanged, other bytes as `_` and two
/// hexadecimal digits.
fn subject_part(name: &str) -> String {
    let mut part = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => part.push(char::from(byte)),
            _ => {
                let _ = write!(part, "_{byte:02x}");
            }
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_a_subject_whatever_its_model_is_called() {
        let route = Route::to_model("generate", "smollm2:135m");
        assert_eq!(route.subject(Urgency::Now), "hone.work.generate.smollm2_3a135m.now");
        assert_eq!(route.consumer(Urgency::Later), "generate-smollm2_3a135m-later");
        assert_eq!(Route::of_role("grade").subject(Urgency::Later), "hone.work.grade.later");
        // Different names are different subjects.
        assert_eq!(subject_part("a_b.*>é"), "a_5fb_2e_2a_3e_c3_a9");
    }
}
