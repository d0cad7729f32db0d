package shell

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	glob "path"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/comfyhub/comfyhub/internal/nearest"
)

// targetsOf returns the instances that an argument names: the one of that name, else those of the
// machine of that name (NAME-1, NAME-2, ...), else those whose names the pattern fits. There is none
// for a name that is not in the list.
func targetsOf(list []Instance, argument string) (found []Instance, err error) {
	for _, i := range list {
		if i.Name == argument {
			return []Instance{i}, nil
		}
	}
	pattern := strings.ContainsAny(argument, "*?[")
	for _, i := range list {
		number, of := strings.CutPrefix(i.Name, argument+"-")
		fits := of && number != "" && strings.Trim(number, "0123456789") == ""
		if pattern {
			if fits, err = glob.Match(argument, i.Name); err != nil {
				return nil, usagef("%q is no pattern: *, ? and [abc] stand for parts of names", argument)
			}
		}
		if fits {
			found = append(found, i)
		}
	}
	if pattern && len(found) == 0 {
		return nil, &Refusal{Status: http.StatusNotFound, Detail: fmt.Sprintf("no instance fits %q; \"status\" lists them", argument)}
	}
	return found, nil
}

// unknown is the error for an instance that the hub does not know, with the one, or the machine, that
// may be meant.
func unknown(list []Instance, name string, err error) error {
	known := make([]string, 0, 2*len(list))
	for _, i := range list {
		known = append(known, i.Name)
	}
	for _, i := range list {
		if machine := strings.TrimRight(i.Name, "0123456789"); machine != i.Name && strings.HasSuffix(machine, "-") {
			known = append(known, strings.TrimSuffix(machine, "-"))
		}
	}
	if like := nearest.Of(name, known); like != "" {
		return fmt.Errorf("%w; did you mean %s?", err, printable(like))
	}
	return err
}

// warning says what a command does to work and to how many instances; empty if it harms nothing.
func (o *operation) warning(found []Instance) string {
	var runs, all []string
	for _, i := range found {
		all = append(all, printable(i.Name))
		if i.State == "busy" {
			runs = append(runs, printable(i.Name))
		}
	}
	stops := ""
	switch {
	case len(runs) == 0:
	case o.verb == "restart":
		stops = " What runs on " + strings.Join(runs, ", ") + " begins again elsewhere."
	case o.verb == "drain" && o.deadline != "":
		stops = " What still runs on " + strings.Join(runs, ", ") + " after " + o.deadline + " begins again elsewhere."
	}
	if stops == "" && len(found) < 2 && o.verb != "restart" {
		return ""
	}
	return fmt.Sprintf("%s %s?%s", o.verb, strings.Join(all, ", "), stops)
}

// agreed asks once whether to go on, if work is interrupted or several are meant. Where nobody can be
// asked, --yes must say so.
func (o *operation) agreed(cmd *cobra.Command, found []Instance) error {
	question := o.warning(found)
	if question == "" || o.yes {
		return nil
	}
	if in, ok := cmd.InOrStdin().(*os.File); ok && !term.IsTerminal(int(in.Fd())) {
		if o.verb == "drain" && len(found) == 1 {
			return nil // the deadline says it already, and scripts give it
		}
		return usagef("%s Add --yes to confirm", question)
	}
	fmt.Fprint(cmd.ErrOrStderr(), question, " [y/N] ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	return &coded{ExitFailed, errors.New("nothing was done")}
}
