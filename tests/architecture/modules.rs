//! Modules of the same parent use each other in one direction only.
//!
//! A module uses another when a path in it, or in a module below it, leads to that other module or to one below it.
//! Items that the parent defines itself are free to both; items that the parent re-exports belong to the module that
//! defines them. Code under `cfg(test)` does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::architecture::source_reader::read_file;

/// A module's place: the names from the crate's root down to it.
pub(crate) type ModulePath = Vec<String>;

/// The names that a module defines or imports, and the places where its code uses names.
#[derive(Default)]
pub(crate) struct Module {
    pub(crate) items: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    pub(crate) uses: Vec<Use>,
}

/// A name brought in by a `use`; without a name, everything that the path holds.
pub(crate) struct Import {
    pub(crate) name: Option<String>,
    pub(crate) path: Vec<String>,
}

/// A path as written in the code.
pub(crate) struct Use {
    pub(crate) path: Vec<String>,
    /// Whether the path is of a `use`, which may end at a module; any other path that ends there means an item of the
    /// same name.
    pub(crate) imports: bool,
    pub(crate) place: String,
}

impl Module {
    /// Whether the line is a name that a `use` brought in, which is a use itself.
    fn repeats_an_import(&self, one: &Use) -> bool {
        !one.imports
            && one.path.len() == 1
            && self.imports.iter().any(|import| import.name.as_ref() == one.path.first())
    }
}

/// The modules of one crate.
#[derive(Default)]
pub(crate) struct Modules(pub(crate) BTreeMap<ModulePath, Module>);

/// Where one module uses another of the same parent: parent, user and used, with the lines that do it.
pub(crate) type Uses = BTreeMap<(ModulePath, String, String), BTreeSet<String>>;

impl Modules {
    /// The modules that belong to a crate's root file.
    pub(crate) fn read(root: &Path) -> Self {
        let mut modules = Self::default();
        read_file(&mut modules, root, root.parent().unwrap(), &[]);
        modules
    }

    /// The modules through which a path leads, including the last one. `None` where the crate defines no such name.
    fn resolve(&self, at: &[String], path: &[String], imports: bool, depth: usize) -> Option<BTreeSet<ModulePath>> {
        let Some((name, rest)) = path.split_first() else {
            return Some(BTreeSet::from([at.to_vec()]));
        };
        let mut passed = match name.as_str() {
            _ if depth > 32 => None,
            "crate" => self.resolve(&[], rest, imports, depth + 1),
            "self" => self.resolve(at, rest, imports, depth + 1),
            "super" => self.resolve(at.split_last()?.1, rest, imports, depth + 1),
            _ => self.resolve_name(at, name, rest, imports, depth + 1),
        }?;
        passed.insert(at.to_vec());
        Some(passed)
    }

    /// Like `resolve`, for a path that begins with a name that `at` defines or imports.
    fn resolve_name(
        &self,
        at: &[String],
        name: &str,
        rest: &[String],
        imports: bool,
        depth: usize,
    ) -> Option<BTreeSet<ModulePath>> {
        let module = &self.0[at];
        let child = [at, &[name.to_owned()]].concat();
        let is_item = module.items.contains(name);
        if self.0.contains_key(&child) && (!rest.is_empty() || (imports && !is_item)) {
            return self.resolve(&child, rest, imports, depth);
        }
        let named: Vec<_> = module.imports.iter().filter(|import| import.name.as_deref() == Some(name)).collect();
        if !named.is_empty() {
            let each = named.iter().map(|import| [&import.path, rest].concat());
            return Some(each.filter_map(|path| self.resolve(at, &path, imports, depth)).flatten().collect());
        }
        if is_item {
            return Some(BTreeSet::new());
        }
        let globs = module.imports.iter().filter(|import| import.name.is_none());
        let mut each = globs.map(|glob| [&glob.path[..], &[name.to_owned()], rest].concat());
        each.find_map(|path| self.resolve(at, &path, imports, depth))
    }

    /// Which modules use which of the same parent.
    pub(crate) fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (user, module) in &self.0 {
            for one in module.uses.iter().filter(|one| !module.repeats_an_import(one)) {
                for used in self.resolve(user, &one.path, one.imports, 0).unwrap_or_default() {
                    let same = user.iter().zip(&used).take_while(|(left, right)| left == right).count();
                    if same < user.len().min(used.len()) {
                        let edge = (user[..same].to_vec(), user[same].clone(), used[same].clone());
                        uses.entry(edge).or_default().insert(format!("{}: {}", one.place, one.path.join("::")));
                    }
                }
            }
        }
        uses
    }
}

/// The uses that make cycles, a text for each cycle.
pub(crate) fn cycles(uses: &Uses) -> Vec<String> {
    let mut found = BTreeMap::<_, String>::new();
    for ((parent, user, used), places) in uses {
        let cycle: BTreeSet<&str> = reached(uses, parent, user)
            .into_iter()
            .filter(|other| reached(uses, parent, other).contains(user.as_str()))
            .collect();
        if cycle.contains(used.as_str()) {
            let text = found.entry((parent, cycle)).or_default();
            *text += &format!("  {user} uses {used}\n");
            places.iter().for_each(|place| *text += &format!("    {place}\n"));
        }
    }
    let title = |parent: &[String], cycle: BTreeSet<&str>| {
        let names = cycle.into_iter().collect::<Vec<_>>().join(", ");
        if parent.is_empty() { names } else { format!("{}: {names}", parent.join("::")) }
    };
    found.into_iter().map(|((parent, cycle), text)| format!("{}\n{text}", title(parent, cycle))).collect()
}

/// The modules that one of the same parent uses, directly or through others.
fn reached<'a>(uses: &'a Uses, parent: &[String], from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(next) = waiting.pop() {
        let of_next = uses.keys().filter(|(of, user, _)| of == parent && user == next);
        waiting.extend(of_next.map(|(_, _, used)| used.as_str()).filter(|used| reached.insert(*used)));
    }
    reached
}

/// The cycles of a crate whose files are given with their texts, the first line of each.
fn cycles_of(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let modules = Modules::read(&folder.path().join(files[0].0));
    cycles(&modules.uses()).iter().map(|cycle| cycle.lines().next().unwrap().to_owned()).collect()
}

#[test]
fn a_cycle_is_found_however_it_is_written() {
    let used = ("b.rs", "pub use super::a::Thing as Other; pub fn made() {}");
    for user in [
        "use crate::b::made; pub struct Thing;",
        "use super::{b::{self, Other}}; pub struct Thing;",
        "pub struct Thing; fn f() { crate::b::made() }",
        "pub struct Thing(Vec<super::b::Other>);",
        "pub struct Thing; fn f() { println!(\"{:?}\", super::b::made()) }",
        "#[derive(Deserialize)] pub struct Thing { #[serde(default = \"crate::b::made\")] field: u8 }",
        "pub struct Thing; mod inner { fn f() { use crate::b; b::made() } }",
        "use super::*; pub struct Thing; fn f() { b::made() }",
        "pub struct Thing; fn f() { super::made() }",
        "use super::made; pub struct Thing;",
    ] {
        let files = [("lib.rs", "mod a; mod b; pub use b::made;"), ("a.rs", user), used];
        assert_eq!(cycles_of(&files), ["a, b"], "{user}");
    }
}

#[test]
fn cycles_are_found_below_modules_and_over_several() {
    let files = [
        ("main.rs", "mod top;"),
        ("top.rs", "mod a; mod b; mod c; mod d;"),
        ("top/a.rs", "use super::b::B; pub struct A;"),
        ("top/b.rs", "mod deep; pub struct B;"),
        ("top/b/deep.rs", "use crate::top::c::C;"),
        ("top/c.rs", "use super::a::A; pub struct C;"),
        ("top/d.rs", "use super::a::A;"),
    ];
    assert_eq!(cycles_of(&files), ["top: a, b, c"]);
}

#[test]
fn what_the_parent_defines_is_free_and_tests_do_not_count() {
    let files = [
        ("lib.rs", "mod a; mod b; pub struct Own; fn b() {}"),
        ("a.rs", "use super::Own; use super::b::B; pub struct A; fn f() { super::b() }"),
        (
            "b.rs",
            "use crate::Own; use crate::b as parents; pub struct B;
            #[cfg(test)] use super::a::A;
            #[cfg(all(test, unix))] mod tests { use crate::a::A; }
            #[test] fn f() { crate::a::A; }
            impl B { #[cfg(test)] fn f() { crate::a::A; } }",
        ),
    ];
    assert_eq!(cycles_of(&files), [""; 0]);
}
