// Package stats counts what a fleet has done, for all hubs of a Redis: what has gone wrong lately
// ([Faults]), how well the last day went ([Trends]), and what tenants have used ([Usage]).
//
// Its keys:
//
//	h:faults   hash  per fault, by a number that grows: when, in milliseconds, its tenant,
//	                 escaped, and the rest as JSON; `n` is the last number
//	h:trends   hash  per five minutes, by their number since the Unix epoch: counts as
//	                 `name=number` with blanks
//	usage:DAY  hash  KIND:TENANT -> how much, on a day since 1970 by UTC; for 400 days
package stats
