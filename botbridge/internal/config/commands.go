package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Bind reads the workflows of all commands. The error names the commands whose
// workflow cannot be used; the others are returned all the same.
func (c *Config) Bind() ([]*workflow.Command, error) {
	var commands []*workflow.Command
	var problems []error
	for _, command := range c.Commands {
		bound, err := c.bind(command)
		if err != nil {
			problems = append(problems, fmt.Errorf("command %s: %w", command.Name, err))
			continue
		}
		if bound.Name == c.DefaultEditCommand && !bound.Edits() {
			problems = append(problems, fmt.Errorf("default_edit_command: %s does not make something from a picture and words", bound.Name))
		}
		commands = append(commands, bound)
	}
	if len(problems) > 0 {
		return commands, errors.Join(problems...) // what a command that is missing says about styles is no news
	}
	return c.style(commands)
}

func (c *Config) bind(command Command) (*workflow.Command, error) {
	if command.Workflow == "" {
		return nil, errors.New("workflow: no file is named")
	}
	file, err := os.ReadFile(within(c.Folder, command.Workflow))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("workflow: there is no file %s", within(c.Folder, command.Workflow))
	}
	if err != nil {
		return nil, fmt.Errorf("workflow: %w", err)
	}
	return workflow.NewCommand(command.Name, command.Spec, file)
}

// LocaleFolder returns the folder of additional languages, "" for none.
func (c *Config) LocaleFolder() string {
	if c.Locales == "" {
		return ""
	}
	return within(c.Folder, c.Locales)
}
