// Package logtest keeps a log for tests that look for something in it.
package logtest

import (
	"bytes"
	"sync"
)

// Log keeps what is written to it. It is safe for concurrent use, and its zero value
// is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns everything written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
