package agent

import (
	"crypto/sha1" //nolint:gosec // Windows names the accounts of services by it
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/spf13/pflag"
)

// servicePlan is what the Windows service of an agent runs.
type servicePlan struct {
	// verb is run or pull.
	verb string
	// flags are those that were given, but for the secret's file.
	flags []string
	// secretFlag names the file of the key or the token, and secretFile is that file; empty
	// if none was given.
	secretFlag, secretFile string
	// state says that the flags have a folder for the agent's own key.
	state bool
	// stopTimeout is how long the agent may take to stop.
	stopTimeout time.Duration
}

// planService checks the command that a service is to run, such as run --join hub:7946.
func planService(args []string) (servicePlan, error) {
	verb, rest, err := newCommand().Find(args)
	if err != nil {
		return servicePlan{}, err
	}
	p := servicePlan{verb: verb.Name()}
	var hub string
	switch p.verb {
	case "run":
		p.secretFlag, hub = "key-file", "join"
	case "pull":
		p.secretFlag, hub = "token-file", "hub"
	default:
		return servicePlan{}, errors.New("what does the service run? run --join HUB:7946, or pull --hub https://HOST")
	}
	if err := verb.ParseFlags(rest); err != nil {
		return servicePlan{}, err
	}
	flags := verb.Flags()
	if flags.NArg() > 0 {
		return servicePlan{}, fmt.Errorf("%s takes no arguments: %q", p.verb, flags.Arg(0))
	}
	if !flags.Changed(hub) {
		return servicePlan{}, fmt.Errorf("--%s: which hub?", hub)
	}
	if p.stopTimeout, err = flags.GetDuration("stop-timeout"); err != nil {
		return servicePlan{}, err
	}
	flags.Visit(func(f *pflag.Flag) {
		switch values, ok := f.Value.(pflag.SliceValue); {
		case f.Name == p.secretFlag:
			p.secretFile = f.Value.String()
		case ok:
			for _, value := range values.GetSlice() {
				p.flags = append(p.flags, "--"+f.Name+"="+value)
			}
		default:
			p.flags = append(p.flags, "--"+f.Name+"="+f.Value.String())
		}
		p.state = p.state || f.Name == "state"
	})
	return p, nil
}

// arguments are those of the service's process, which reads its secret from this file and
// keeps its own key in this folder.
func (p servicePlan) arguments(secretFile, state string) []string {
	args := append([]string{p.verb, "--" + p.secretFlag + "=" + secretFile}, p.flags...)
	if p.verb == "run" && !p.state {
		args = append(args, "--state="+state)
	}
	return args
}

// serviceSID is the security identifier that Windows gives the account of a service.
func serviceSID(name string) string {
	var text []byte
	for _, unit := range utf16.Encode([]rune(strings.ToUpper(name))) {
		text = binary.LittleEndian.AppendUint16(text, unit)
	}
	sum := sha1.Sum(text) //nolint:gosec // as above
	number := func(i int) uint32 { return binary.LittleEndian.Uint32(sum[4*i:]) }
	return fmt.Sprintf("S-1-5-80-%d-%d-%d-%d-%d", number(0), number(1), number(2), number(3), number(4))
}
