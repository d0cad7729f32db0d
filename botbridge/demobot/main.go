// Command demobot shows the bot bridge on one machine: a hub with the embedded
// queue, an agent with two simulated ComfyUI instances, and the bridge, each a
// separate process, connected to a fake of Telegram's Bot API. A scripted person
// asks for a picture, follows its progress, receives it, presses "again", cancels
// one, asks what a command takes, chooses one of four pictures, asks for other looks and
// words, sends photos, finds a picture again, pays for a video, and gets back what was paid for
// another one. The program prints what the person sees.
//
// With -page FILE it writes the chat as an HTML page, too; with -language ru the person speaks
// Russian.
//
// Run it with `make demo-bot` from the root of the repository. It ends with exit
// code 0 if everything has happened as it should.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/stage"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

const (
	demoTimeout = 10 * time.Minute // for a busy machine
	workflows   = "examples/bot"
)

func main() {
	pageFile := flag.String("page", "", "write the chat as an HTML page to this `file`")
	language := flag.String("language", "en", "what the person speaks: en or ru")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	err := run(ctx, *pageFile, *language)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pageFile, language string) error {
	config, err := os.ReadFile(filepath.Join(workflows, "bot.yaml"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "comfyhub-demo-bot")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Println("starting a hub, two simulated instances, a fake Telegram and the bridge ...")
	s, err := stage.Open(ctx, stage.Options{
		Set: programs.Made(), Dir: dir, Config: selling(string(config)), Workflows: []string{workflows},
		AgentFlags: []string{"--preview-method", "latent2rgb", "--step-time", "150ms"},
	})
	defer s.Close() //nolint:staticcheck // a stage that has failed to open still closes what it opened
	c := newScene(ctx, s.Fake.Person(ada, language))
	if err == nil {
		err = play(ctx, s, c)
	}
	if err == nil && pageFile != "" {
		err = writePage(pageFile, s.Fake, c.person, c.presses)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, s.Tails())
	}
	return err
}

// selling switches on what the example only mentions: terms, and a video that has its price.
func selling(config string) string {
	return strings.NewReplacer("# payments:", "payments:", "# terms:", "terms:", "    price: 4", "    price: 400 # more than the daily share: never free\n    stars: 25").Replace(config)
}
