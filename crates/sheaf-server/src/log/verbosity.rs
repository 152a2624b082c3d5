//! The verbosity of each component: a tree of levels, where -1 inherits the parent's level.
//!
//! A lookup is one atomic load of the effective level. Setting a level recomputes the effective
//! levels of all components.

use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use sheaf_bson::error_code::Result;
use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};

use super::Component;

const COUNT: usize = Component::ALL.len();

/// The highest verbosity.
const LEVEL_MAX: i8 = 5;

/// Inherits the parent's level.
const INHERITED: i8 = -1;

type Levels = [i8; COUNT];

pub(super) struct Verbosity {
    set: Mutex<Levels>,
    in_effect: [AtomicU8; COUNT],
}

impl Verbosity {
    pub(super) fn new(default: u8) -> Self {
        let verbosity = Verbosity {
            set: Mutex::new([INHERITED; COUNT]),
            in_effect: [const { AtomicU8::new(0) }; COUNT],
        };
        verbosity.set_one(Component::Default, default.min(LEVEL_MAX as u8) as i8);
        verbosity
    }

    /// The effective level.
    pub(super) fn of(&self, component: Component) -> u8 {
        self.in_effect[component as usize].load(Ordering::Relaxed)
    }

    pub(super) fn set_one(&self, component: Component, level: i8) {
        let mut levels = self.set.lock();
        levels[component as usize] = level.clamp(INHERITED, LEVEL_MAX);
        self.put_into_effect(&levels);
    }

    pub(super) fn set(&self, document: RawDoc<'_>) -> Result<()> {
        let mut levels = self.set.lock();
        let mut wanted = *levels;
        read(document, Component::Default, &mut wanted)?;
        *levels = wanted;
        self.put_into_effect(&levels);
        Ok(())
    }

    fn put_into_effect(&self, levels: &Levels) {
        // Parents precede their children, so a parent's level is set before a child inherits it.
        for component in Component::ALL.iter().copied() {
            let level = match levels[component as usize] {
                INHERITED if component == Component::Default => 0,
                INHERITED => self.of(component.parent()),
                level => level as u8,
            };
            self.in_effect[component as usize].store(level, Ordering::Relaxed);
        }
    }

    pub(super) fn document(&self) -> DocBuf {
        let levels = *self.set.lock();
        let mut out = DocBuilder::new();
        append(Component::Default, &levels, &mut out);
        out.finish()
    }
}

fn append(component: Component, levels: &Levels, out: &mut DocBuilder) {
    out.append("verbosity", i32::from(levels[component as usize]));
    for child in children(component) {
        out.begin_document(last_name(child));
        append(child, levels, out);
        out.end();
    }
}

fn read(document: RawDoc<'_>, component: Component, levels: &mut Levels) -> Result<()> {
    for field in document {
        if field.key() == "verbosity" {
            levels[component as usize] = level(field.value(), component)?;
            continue;
        }
        let Some(child) = children(component).find(|c| last_name(*c) == field.key()) else {
            return Err(Error::bad_value(format!(
                "Invalid component name {}: logComponentVerbosity knows {}",
                dotted(component, field.key()),
                names(component)
            )));
        };
        match field.value() {
            RawValue::Document(inner) => read(inner, child, levels)?,
            value => levels[child as usize] = level(value, child)?,
        }
    }
    Ok(())
}

fn level(value: RawValue<'_>, component: Component) -> Result<i8> {
    let number = value.as_f64().ok_or_else(|| {
        Error::new(
            ErrorCode::TYPE_MISMATCH,
            format!(
                "the verbosity of component '{}' must be a number from -1 to {LEVEL_MAX}, not {}",
                component.name(),
                value.type_name()
            ),
        )
    })?;
    Ok((number as i64).clamp(INHERITED.into(), LEVEL_MAX.into()) as i8)
}

fn children(component: Component) -> impl Iterator<Item = Component> {
    Component::ALL
        .iter()
        .copied()
        .filter(move |c| *c != Component::Default && c.parent() == component)
}

fn last_name(component: Component) -> &'static str {
    let name = component.name();
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

fn dotted(component: Component, name: &str) -> String {
    match component {
        Component::Default => name.to_string(),
        parent => format!("{}.{name}", parent.name()),
    }
}

fn names(component: Component) -> String {
    let mut names = vec!["verbosity"];
    names.extend(children(component).map(last_name));
    names.join(", ")
}
