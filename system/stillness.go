package system

import "testing/synctest"

// stillness lets one at a time look at something while nobody else in the bubble runs: two that wait
// for that would wait for each other.
type stillness chan struct{} // whoever waits for a mutex counts as running

func newStillness() stillness { return make(stillness, 1) }

func (s stillness) look(look func()) {
	s <- struct{}{}
	defer func() { <-s }()
	synctest.Wait()
	look()
}
