package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"github.com/spf13/cobra"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"
	"golang.org/x/term"
)

// platformCommands are the commands that only this system has.
func platformCommands() []*cobra.Command {
	cmd := &cobra.Command{Use: "service", Short: "Install and control the agent as a Windows service"}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "install run|pull [flags]",
			Short: "Install the service, or change it, and start it",
			Long: "install makes a service of a command of the agent, such as run --join hub:7946, and starts it. It\n" +
				"copies the program to " + programFolder() + " and the key or token to " + dataFolder() + ", where only\n" +
				"administrators and the service can read it; without --key-file or --token-file it asks for it.\n" +
				"Install again to change a flag or to upgrade. It needs an administrator.",
			Example: "  agent service install run --join hub:7946 --comfyui http://127.0.0.1:8188\n" +
				"  agent service install pull --hub https://hub.example.com --token-file token.txt",
			DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
					return cmd.Help()
				}
				return installService(cmd.OutOrStdout(), args)
			},
		},
		&cobra.Command{
			Use: "uninstall", Short: "Stop and remove the service, its program and its key or token", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return uninstallService() },
		},
		&cobra.Command{
			Use: "start", Short: "Start the service", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				return withService(func(s *mgr.Service) error { return s.Start() })
			},
		},
		&cobra.Command{
			Use: "stop", Short: "Stop the service, which waits for its runs", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return withService(stopService) },
		},
	)
	return []*cobra.Command{cmd}
}

func programFolder() string { return filepath.Join(os.Getenv("ProgramFiles"), "ComfyHub") }

func installedProgram() string { return filepath.Join(programFolder(), "agent.exe") }

func dataFolder() string { return filepath.Join(os.Getenv("ProgramData"), "ComfyHub") }

// secretFiles are the service's copies of the key or token, by flag.
func secretFiles() map[string]string {
	return map[string]string{"key-file": filepath.Join(dataFolder(), "key"), "token-file": filepath.Join(dataFolder(), "token")}
}

// withService opens the installed service.
func withService(do func(*mgr.Service) error) error {
	manager, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("service manager: %w (this needs an administrator)", err)
	}
	defer func() { _ = manager.Disconnect() }()
	s, err := manager.OpenService(serviceName)
	if err != nil {
		return fmt.Errorf("service %s: %w", serviceName, err)
	}
	defer func() { _ = s.Close() }()
	return do(s)
}

// stopService stops a service and waits until it has stopped.
func stopService(s *mgr.Service) error {
	status, err := s.Query()
	if err == nil && status.State != svc.Stopped && status.State != svc.StopPending {
		status, err = s.Control(svc.Stop)
	}
	for err == nil && status.State != svc.Stopped {
		time.Sleep(stopTick / 10)
		status, err = s.Query()
	}
	if errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return nil
	}
	return err
}

func installService(out io.Writer, args []string) error {
	plan, err := planService(args)
	if err != nil {
		return err
	}
	secret, err := plan.readSecret()
	if err != nil {
		return err
	}
	manager, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("service manager: %w (this needs an administrator)", err)
	}
	defer func() { _ = manager.Disconnect() }()
	s, err := manager.OpenService(serviceName)
	exists := err == nil
	if exists {
		defer func() { _ = s.Close() }()
		if err := stopService(s); err != nil {
			return err
		}
	}
	program, err := copyProgram()
	if err != nil {
		return err
	}
	if err := protect(dataFolder()); err != nil {
		return err
	}
	for flag, path := range secretFiles() {
		if flag != plan.secretFlag {
			err = removeFile(path) // a machine with a token has no use for the fleet's key
		} else if secret != nil {
			err = replaceFile(path, secret)
		}
		if err != nil {
			return err
		}
	}
	arguments := plan.arguments(secretFiles()[plan.secretFlag], filepath.Join(dataFolder(), "state"))
	config := mgr.Config{
		ServiceType: windows.SERVICE_WIN32_OWN_PROCESS,
		StartType:   mgr.StartAutomatic, ErrorControl: mgr.ErrorNormal,
		// An account of its own without privileges.
		ServiceStartName: `NT SERVICE\` + serviceName,
		DisplayName:      "ComfyHub agent", Description: "Brings the ComfyUI instances of this machine into a ComfyHub fleet.",
	}
	if exists {
		config.BinaryPathName = windows.ComposeCommandLine(append([]string{program}, arguments...))
		err = s.UpdateConfig(config)
	} else {
		s, err = manager.CreateService(serviceName, program, config, arguments...)
		if err == nil {
			defer func() { _ = s.Close() }()
		}
	}
	if err != nil {
		return fmt.Errorf("service %s: %w", serviceName, err)
	}
	if err := keepRunning(s, plan.stopTimeout); err != nil {
		return err
	}
	// It is there already after an earlier installation.
	_ = eventlog.InstallAsEventCreate(serviceName, eventlog.Info|eventlog.Warning|eventlog.Error)
	if err := s.Start(); err != nil {
		return fmt.Errorf("service %s is installed, but does not start: %w", serviceName, err)
	}
	_, err = fmt.Fprintf(out, "The service %s runs. Its log: Get-WinEvent -ProviderName %s\n", serviceName, serviceName)
	return err
}

// keepRunning has Windows start the service again whenever it fails, and wait for its runs at
// shutdown.
func keepRunning(s *mgr.Service, stopTimeout time.Duration) error {
	restart := mgr.RecoveryAction{Type: mgr.ServiceRestart, Delay: 2 * time.Second}
	if err := s.SetRecoveryActions([]mgr.RecoveryAction{restart, restart, restart}, 60); err != nil {
		return fmt.Errorf("service %s: %w", serviceName, err)
	}
	if err := s.SetRecoveryActionsOnNonCrashFailures(true); err != nil {
		return fmt.Errorf("service %s: %w", serviceName, err)
	}
	// SERVICE_PRESHUTDOWN_INFO is one number of milliseconds.
	wait := uint32((stopTimeout + 15*time.Second).Milliseconds())
	//nolint:gosec // this is how the call takes it
	if err := windows.ChangeServiceConfig2(s.Handle, windows.SERVICE_CONFIG_PRESHUTDOWN_INFO, (*byte)(unsafe.Pointer(&wait))); err != nil {
		return fmt.Errorf("service %s: %w", serviceName, err)
	}
	return nil
}

func uninstallService() error {
	err := withService(func(s *mgr.Service) error { return errors.Join(stopService(s), s.Delete()) })
	if err != nil {
		return err
	}
	_ = eventlog.Remove(serviceName)
	for _, path := range secretFiles() {
		err = errors.Join(err, removeFile(path))
	}
	if self, _ := os.Executable(); !strings.EqualFold(self, installedProgram()) { // Windows removes no running program
		err = errors.Join(err, removeFile(installedProgram()))
	}
	return err
}

// removeFile removes a file if it is there.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readSecret returns the key or token from the given file or from the console; nil if the
// service has one already.
func (p servicePlan) readSecret() ([]byte, error) {
	var secret []byte
	var err error
	switch {
	case p.secretFile != "":
		if secret, err = os.ReadFile(p.secretFile); err != nil {
			return nil, fmt.Errorf("--%s: %w", p.secretFlag, err)
		}
	case fileExists(secretFiles()[p.secretFlag]):
		return nil, nil
	case !term.IsTerminal(int(os.Stdin.Fd())):
		return nil, fmt.Errorf("--%s: which file?", p.secretFlag)
	default:
		fmt.Fprintf(os.Stderr, "The secret for --%s (it is not shown): ", p.secretFlag)
		secret, err = term.ReadPassword(int(os.Stdin.Fd()))
		fmt.Fprintln(os.Stderr)
		if err != nil {
			return nil, err
		}
	}
	if strings.TrimSpace(string(secret)) == "" {
		return nil, fmt.Errorf("--%s: empty", p.secretFlag)
	}
	return secret, nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// copyProgram puts this program where only administrators can change it.
func copyProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	target := installedProgram()
	if strings.EqualFold(self, target) {
		return target, nil
	}
	text, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(programFolder(), 0o755); err != nil {
		return "", err
	}
	return target, replaceFile(target, text)
}

// replaceFile writes a file whole or not at all. It gets the permissions of its folder.
func replaceFile(path string, text []byte) error {
	draft, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(draft.Name()) }()
	_, err = draft.Write(text)
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return err
	}
	return os.Rename(draft.Name(), path)
}

// protect creates a folder that only administrators, the system and the service can read. The
// folder above is everybody's: a user may have made this one in advance.
func protect(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
		return errors.Join(fmt.Errorf("%s is not a folder", folder), err)
	}
	sd, err := windows.SecurityDescriptorFromString("O:BAD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1301bf;;;" + serviceSID(serviceName) + ")")
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	dacl, _, err := sd.DACL()
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	const what = windows.OWNER_SECURITY_INFORMATION | windows.DACL_SECURITY_INFORMATION | windows.PROTECTED_DACL_SECURITY_INFORMATION
	if err := windows.SetNamedSecurityInfo(folder, windows.SE_FILE_OBJECT, what, owner, nil, dacl, nil); err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	return nil
}
