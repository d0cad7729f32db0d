// Package scale starts and stops machines by need. One hub at a time looks every few seconds what
// waits, asks [schedule.ScaleBounds] how many instances of each class there should be, and tells
// the class's [Provider] when that number changes.
//
// A machine goes in four steps: it is drained, its last job ends, the provider is told to remove
// it by name, and the drain is undone once it is gone. So no machine goes that runs a job or is
// about to get one.
//
// The number that a provider is told is absolute. Each change has an id, and is stored before the
// provider is called; whoever takes over from a hub that died in the call repeats it under the same
// id. An id never stands for two different changes.
//
// Its keys:
//
//	scale:lead     string  the hub that does it, for a while
//	scale:classes  hash    per class: what is known about it, as JSON
package scale
