// Package keyring manages the hubs' own keys: random keys that are created at the
// first start, shared by all hubs of a storage, and known to nobody else. GPU
// machines do not have them: they are independent of the gossip key.
//
// A ring is a set of keys, each an object of its own in a [Store]. An object is
// created once under a name that is never used again, so that two hubs that start
// or rotate at the same moment cannot overwrite each other's key; both keys are
// then in the ring. What is derived from a key depends on the [Purpose], so a value
// sealed for one purpose cannot be opened for another.
//
// A sealed value names its key. A hub that encounters an unknown key reads the ring
// again. A new key is distributed for [Spread] before anything is sealed with it,
// and an old one opens values for [Keep] after it was replaced.
//
// What must lie where others may be able to write is signed with the ring as well: see
// [Records]. A [Shelf] keeps signed records in the storage, beside the keys.
//
// The keys are in the storage and not in Redis because the encrypted API keys are
// in Redis, and a copy of Redis's data must not contain what opens them. The files
// that links lead to are in the storage anyway, so the keys of links reveal nothing
// new to anybody who can read it. With an operator's secret (see [Options]), even a
// copy of both reveals no API key.
package keyring
