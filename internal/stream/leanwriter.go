package stream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
)

const (
	// readBuffer and writeBuffer are the sizes of a socket's buffers in bytes. The web server's are
	// 4 KiB each, and most sockets are idle. Anything longer than a buffer bypasses it.
	readBuffer  = 512
	writeBuffer = 1024
)

// leanWriter is a response whose connection is handed over with small buffers and
// without what the web server keeps for it.
type leanWriter struct{ http.ResponseWriter }

// Hijack implements [http.Hijacker]. It takes the connection from the server itself: otherwise
// Caddy's recorder for access logs would go on counting bytes, in a number that the log reads once
// the handler has returned.
func (w leanWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	server := w.ResponseWriter
	for {
		wrapper, ok := server.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		server = wrapper.Unwrap()
	}
	conn, buffers, err := http.NewResponseController(server).Hijack()
	if err != nil {
		return nil, nil, fmt.Errorf("take over the connection: %w", err)
	}
	// What the client sent right behind its request; it stays in the new buffer.
	early, err := buffers.Reader.Peek(buffers.Reader.Buffered())
	if err != nil {
		return nil, nil, fmt.Errorf("take over the connection: %w", err)
	}
	reader := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(early), conn), max(readBuffer, len(early)))
	if _, err := reader.Peek(len(early)); err != nil {
		return nil, nil, fmt.Errorf("take over the connection: %w", err)
	}
	return conn, bufio.NewReadWriter(reader, bufio.NewWriterSize(conn, writeBuffer)), nil
}
