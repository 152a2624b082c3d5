//! The lists of one field of vectors: their centroids, and which list a vector belongs to.
//!
//! ```text
//!   groups      ●────────┬──────●────────────┬───●        a few centroids of centroids
//!   lists       ○ ○ ○ ○ ○│ ○ ○ ○ ○ ○ ○ ○ ○ ○ │ ○ ○ ○ ○     each group's lists are contiguous
//! ```
//!
//! A vector belongs to the nearest list of the nearest groups, so a write compares with a few dozen
//! centroids instead of thousands; a search ranks all lists. Until there are enough vectors there
//! is one list, and every search is exact.
//!
//! Rows in the index's table, before all entries:
//!
//! ```text
//!   0 "v" field "h"            number of vectors trained on, u64 | first list of each group, u32 each
//!   0 "v" field "g" number     centroid of a group, f32 each
//!   0 "v" field "l" number     centroid of a list
//! ```

use sheaf_bson::Result;
use sheaf_query::vector::{QueryVector, Similarity, VectorField, kernels};
use sheaf_storage::{Snapshot, TableId};

use super::training;
use crate::index::key_set::damaged_key;
use crate::storage_error::IntoClientError;

/// Up to this many lists are compared directly, without groups.
const LISTS_UNGROUPED_MAX: usize = 64;
/// Number of groups in which a vector's list is searched. Part of the format.
const GROUPS_SEARCHED: usize = 3;

/// The lists of one vector field.
#[derive(Debug, Clone, PartialEq)]
pub struct Lists {
    dimensions: usize,
    similarity: Similarity,
    trained: u64,
    /// Concatenated, `dimensions` floats each; empty if there is a single list.
    centroids: Vec<f32>,
    groups: Vec<f32>,
    /// Number of the first list of each group.
    group_starts: Vec<u32>,
}

impl Lists {
    /// A single list.
    pub fn one(field: &VectorField) -> Lists {
        Lists {
            dimensions: field.dimensions,
            similarity: field.similarity,
            trained: 0,
            centroids: Vec::new(),
            groups: Vec::new(),
            group_starts: Vec::new(),
        }
    }

    /// Creates lists from these concatenated centroids, trained for `trained` vectors. Grouping
    /// renumbers the lists: a list's number is not its position in `centroids`.
    /// Errors: those of `check`, which is called repeatedly.
    pub fn new(
        field: &VectorField,
        trained: u64,
        centroids: Vec<f32>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Lists> {
        let mut lists = Lists {
            trained,
            ..Lists::one(field)
        };
        let count = centroids.len() / field.dimensions;
        if count <= LISTS_UNGROUPED_MAX {
            lists.centroids = centroids;
            return Ok(lists);
        }
        let wanted = (count as f64).sqrt().ceil() as usize;
        let parts = training::partition(
            &centroids,
            field.dimensions,
            count.div_ceil(wanted),
            lists.is_angular(),
            check,
        )?;
        for part in parts {
            lists
                .group_starts
                .push((lists.centroids.len() / field.dimensions) as u32);
            lists.groups.extend_from_slice(&part.centroid);
            for member in part.members {
                let at = member as usize * field.dimensions;
                lists
                    .centroids
                    .extend_from_slice(&centroids[at..at + field.dimensions]);
            }
        }
        Ok(lists)
    }

    /// Whether centroids are directions (unit length).
    fn is_angular(&self) -> bool {
        self.similarity == Similarity::Cosine
    }

    /// Number of lists, at least 1.
    pub fn count(&self) -> usize {
        (self.centroids.len() / self.dimensions).max(1)
    }

    /// Number of vectors the centroids were trained for; 0 if untrained.
    pub fn trained(&self) -> u64 {
        self.trained
    }

    fn centroid(&self, list: usize) -> &[f32] {
        &self.centroids[list * self.dimensions..][..self.dimensions]
    }

    /// Proximity of a vector to a centroid; greater is nearer. Part of the format.
    fn nearness(&self, vector: &[f32], centroid: &[f32]) -> f32 {
        match self.is_angular() {
            true => kernels::dot_of(vector, centroid),
            false => -kernels::distance_squared_of(vector, centroid),
        }
    }

    /// The list that a vector belongs to. The result for a vector must never change: entries are
    /// found by it.
    pub fn list_of(&self, vector: &[f32]) -> u32 {
        let mut best = (f32::NEG_INFINITY, 0u32);
        let mut consider = |lists: std::ops::Range<usize>| {
            for list in lists {
                let nearness = self.nearness(vector, self.centroid(list));
                if nearness > best.0 {
                    best = (nearness, list as u32);
                }
            }
        };
        let count = self.centroids.len() / self.dimensions;
        if self.group_starts.is_empty() {
            consider(0..count);
            return best.1;
        }
        let mut nearest = [(f32::NEG_INFINITY, usize::MAX); GROUPS_SEARCHED];
        for (group, centroid) in self.groups.chunks_exact(self.dimensions).enumerate() {
            let nearness = self.nearness(vector, centroid);
            let place = nearest.iter().position(|(other, _)| nearness > *other);
            if let Some(place) = place {
                nearest[place..].rotate_right(1);
                nearest[place] = (nearness, group);
            }
        }
        for (_, group) in nearest {
            let Some(&start) = self.group_starts.get(group) else {
                continue;
            };
            let end = self
                .group_starts
                .get(group + 1)
                .map_or(count, |&end| end as usize);
            consider(start as usize..end);
        }
        best.1
    }

    /// All lists, the most promising first.
    pub fn ranked(&self, query: &QueryVector) -> Vec<u32> {
        if self.centroids.is_empty() {
            return vec![0];
        }
        let promise = |centroid: &[f32]| match self.similarity {
            Similarity::Euclidean => -kernels::distance_squared_of(query.components(), centroid),
            Similarity::Cosine | Similarity::DotProduct => {
                kernels::dot_of(query.components(), centroid)
            }
        };
        let centroids = self.centroids.chunks_exact(self.dimensions);
        let mut ranked: Vec<(f32, u32)> = centroids
            .enumerate()
            .map(|(list, centroid)| (promise(centroid), list as u32))
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.into_iter().map(|(_, list)| list).collect()
    }

    /// The rows that store the lists, ascending; none for a single list.
    pub(crate) fn rows(&self, field: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        if self.centroids.is_empty() {
            return Vec::new();
        }
        let bytes = |floats: &[f32]| floats.iter().flat_map(|f| f.to_le_bytes()).collect();
        let mut rows = Vec::new();
        for (number, centroid) in self.groups.chunks_exact(self.dimensions).enumerate() {
            rows.push((row_key(field, b'g', Some(number as u32)), bytes(centroid)));
        }
        let starts = self
            .group_starts
            .iter()
            .flat_map(|start| start.to_le_bytes());
        let head: Vec<u8> = self
            .trained
            .to_le_bytes()
            .into_iter()
            .chain(starts)
            .collect();
        rows.push((row_key(field, b'h', None), head));
        for (number, centroid) in self.centroids.chunks_exact(self.dimensions).enumerate() {
            rows.push((row_key(field, b'l', Some(number as u32)), bytes(centroid)));
        }
        rows
    }

    /// Reads the lists of a field from its index's table.
    /// Errors: `DataCorruptionDetected`, those of the storage engine.
    pub(crate) fn read(
        snapshot: &dyn Snapshot,
        table: TableId,
        number: usize,
        field: &VectorField,
    ) -> Result<Lists> {
        let mut lists = Lists::one(field);
        let Some(head) = snapshot
            .get(table, &row_key(number, b'h', None))
            .into_client_error()?
        else {
            return Ok(lists);
        };
        let damaged = || damaged_key("its description of the lists is damaged");
        let (trained, starts) = head.split_first_chunk::<8>().ok_or_else(damaged)?;
        lists.trained = u64::from_le_bytes(*trained);
        let (starts, rest) = starts.as_chunks::<4>();
        lists.group_starts = starts
            .iter()
            .map(|start| u32::from_le_bytes(*start))
            .collect();
        for (kind, floats) in [(b'g', &mut lists.groups), (b'l', &mut lists.centroids)] {
            let prefix = row_key(number, kind, None);
            let mut cursor = snapshot.cursor(table).into_client_error()?;
            let mut on = cursor.seek(&prefix).into_client_error()?;
            while on && cursor.key().starts_with(&prefix) {
                let value = cursor.value();
                if value.len() != 4 * field.dimensions {
                    return Err(damaged());
                }
                floats.extend(kernels::floats(value));
                on = cursor.next().into_client_error()?;
            }
        }
        let count = lists.centroids.len() / field.dimensions;
        let ascending = lists.group_starts.is_sorted()
            && lists
                .group_starts
                .iter()
                .all(|&start| (start as usize) < count);
        let groups_fit = lists.groups.len() == lists.group_starts.len() * field.dimensions;
        if !rest.is_empty() || count == 0 || !ascending || !groups_fit {
            return Err(damaged());
        }
        Ok(lists)
    }
}

fn row_key(field: usize, kind: u8, number: Option<u32>) -> Vec<u8> {
    let mut key = vec![0, b'v', field as u8, kind];
    key.extend(number.iter().flat_map(|number| number.to_be_bytes()));
    key
}
