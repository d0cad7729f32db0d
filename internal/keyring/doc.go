// Package keyring keeps the hubs' own keys: random ones that are made at the
// first start, shared by all hubs of a storage, and known to nobody else. No
// GPU machine has them: they have nothing to do with the gossip key.
//
// A ring is a set of keys, each an object of its own in a [Store]. An object is
// created once under a name that is never used again, so that two hubs that
// start at the same moment, or rotate at the same moment, cannot overwrite each
// other's key; both keys are then in the ring. What is derived from a key
// depends on the [Purpose], so a value sealed for one purpose opens for no
// other.
//
// A sealed value names its key. A hub that meets a key it does not know reads
// the ring again. A new key is handed out for [Spread] before anything is
// sealed with it, and an old one opens values for [Keep] after it was replaced.
//
// Why the storage and not Redis: the encrypted API keys lie in Redis, and a copy
// of Redis's data must not hold what opens them. The files that links lead to
// lie in the storage already, so the keys of links give nothing new to whoever
// can read it. Under an operator's secret (see [Options]) even a copy of both
// gives no API key away.
package keyring
