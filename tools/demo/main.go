// Command demo shows ComfyHub on one machine: it starts a hub with the
// embedded queue and an agent with three simulated ComfyUI instances, sends an
// example workflow through the hub as any ComfyUI client would, saves the
// picture under demo-output/ and stays up until Ctrl-C.
//
// It is run by `make demo` from the root of the repository, where ./caddy and
// bin/agent have just been built. With DEMO_ONCE=1 in the environment it ends
// once the picture is saved and is a valid image.
//
// With DEMO_ELASTIC=1 there is no instance at first: a burst of prompts has the hub
// start up to three machines, which go when they have nothing to do.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

const (
	outputDir    = "demo-output"
	imageTimeout = 2 * time.Minute
	instances    = 3
)

//go:embed workflow.json
var workflow []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := play(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err != nil && interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "\ndemo failed:", err)
		os.Exit(1)
	}
}

// play is the demonstration, or one step of it as the program that the hub calls.
func play(ctx context.Context) error {
	if len(os.Args) == 3 && os.Args[1] == tellFlag {
		return tell(ctx, os.Args[2])
	}
	return run(ctx)
}

// run is the whole demonstration. All that it started has ended when it
// returns.
func run(ctx context.Context) (err error) {
	once := os.Getenv("DEMO_ONCE") == "1"
	fleet, err := newFleet()
	if err != nil {
		return err
	}
	interrupt := ctx
	ctx, failed := context.WithCancelCause(interrupt)
	defer func() {
		fleet.Stop()
		failed(nil)
		if err != nil && interrupt.Err() == nil {
			fmt.Fprintln(os.Stderr, fleet.Tails())
		}
	}()

	say("hub", "%s, with the embedded queue in %s", fleet.URL(""), fleet.Dir)
	rented, err := begin(ctx, fleet, failed)
	if err != nil {
		return err
	}
	picture, err := makePicture(ctx, fleet.URL(""))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(outputDir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(outputDir, filepath.Base(picture.name))
	if err := os.WriteFile(file, picture.bytes, 0o644); err != nil {
		return err
	}
	say("saved", "%s (PNG, %d x %d, %d kB)", file, picture.width, picture.height, len(picture.bytes)/1000)
	if rented != nil {
		if err := rented.gone(ctx); err != nil {
			return err
		}
	}
	if once {
		return nil
	}

	fmt.Printf(`
The dashboard   %[1]s/hub/
ComfyUI's API   %[1]s (point any ComfyUI client here)
The fleet       ./comfyhub status --hub %[1]s
Metrics         http://%[2]s/metrics
Logs            %[3]s

Ctrl-C ends the demo.
`, fleet.URL(""), fleet.Admin, fleet.Dir)
	<-ctx.Done()
	if interrupt.Err() == nil {
		return context.Cause(ctx)
	}
	fmt.Println("\nstopping")
	return nil
}

// begin starts the programs: a hub and its instances, or a hub that has machines started by need.
func begin(ctx context.Context, fleet *programs.Fleet, failed func(error)) (rented *machines, err error) {
	if os.Getenv("DEMO_ELASTIC") == "1" {
		if rented, err = elastic(ctx, fleet); err != nil {
			return nil, err
		}
		if err := startHub(ctx, fleet, failed); err != nil {
			return nil, err
		}
		return rented, burst(ctx, fleet.URL(""))
	}
	say("agent", "%d simulated ComfyUI instances", instances)
	names, err := start(ctx, fleet, failed)
	for _, name := range names {
		say("instance", "%s is idle", name)
	}
	return nil, err
}

// makePicture sends the workflow through the hub and shows its progress.
func makePicture(ctx context.Context, hub string) (picture, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, imageTimeout, fmt.Errorf("no picture after %v", imageTimeout))
	defer cancel()
	p, err := generate(ctx, hub, workflow, newProgress(os.Stdout))
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return p, err
}

// say prints one step of the demonstration.
func say(step, format string, args ...any) {
	fmt.Printf("%-10s"+strings.TrimSuffix(format, "\n")+"\n", append([]any{step}, args...)...)
}
