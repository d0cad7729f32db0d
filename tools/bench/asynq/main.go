// Command asynq measures how many tasks a second asynq enqueues and processes. It is a module
// of its own, so that the hub does not depend on asynq; `make bench-queue` runs it.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	redis := flag.String("redis", "", "address of a Redis, host:port")
	tasks := flag.Int("tasks", 5000, "how many")
	size := flag.Int("size", 10_000, "bytes of a payload")
	workers := flag.Int("workers", 16, "how many enqueue at once, and how many process")
	flag.Parse()
	rate, err := run(*redis, *tasks, *size, *workers)
	if err != nil {
		fmt.Fprintln(os.Stderr, "asynq:", err)
		os.Exit(1)
	}
	fmt.Printf("%.1f\n", rate)
}

// run returns how many tasks a second are enqueued and processed.
func run(redis string, tasks, size, workers int) (float64, error) {
	options := asynq.RedisClientOpt{Addr: redis}
	client := asynq.NewClient(options)
	defer func() { _ = client.Close() }()
	server := asynq.NewServer(options, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
	var processed atomic.Int64
	done := make(chan struct{})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		if len(t.Payload()) != size {
			return fmt.Errorf("a payload of %d bytes", len(t.Payload()))
		}
		if processed.Add(1) == int64(tasks) {
			close(done)
		}
		return nil
	}))
	if err != nil {
		return 0, err
	}
	payload := bytes.Repeat([]byte("prompt "), size/7+1)[:size]
	var posted atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	began := time.Now()
	for range workers {
		all.Go(func() {
			for posted.Add(1) <= int64(tasks) {
				// As long as the hub keeps what has ended.
				if _, err := client.Enqueue(asynq.NewTask("bench", payload, asynq.Retention(time.Hour))); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		return 0, fmt.Errorf("only %d of %d tasks were processed", processed.Load(), tasks)
	}
	took := time.Since(began)
	server.Shutdown()
	return float64(tasks) / took.Seconds(), nil
}
