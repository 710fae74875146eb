"""Subjects of the prompt set: what its forms ask about."""

TOPICS = (
    "photosynthesis", "inflation", "the French Revolution", "black holes", "sourdough bread",
    "compound interest", "the immune system", "plate tectonics", "machine translation", "jazz",
    "the water cycle", "vaccines", "supply and demand", "chess openings", "recycling", "DNA",
    "the Roman Empire", "electric cars", "meditation", "the stock market", "bees", "volcanoes",
    "democracy", "public key cryptography", "the moon", "nuclear power", "coffee", "insomnia",
    "the printing press", "coral reefs", "mortgages", "impressionism", "probability", "sharks",
    "the periodic table", "trade unions", "haiku", "migraine", "solar panels", "the Silk Road",
    "gravity", "neural networks", "copyright", "fermentation", "the human heart", "glaciers",
    "the rules of football", "antibiotics", "perspective in drawing", "version control", "rice",
    "the scientific method", "air traffic control", "taxes", "dinosaurs", "yoga", "typography",
    "the Industrial Revolution", "allergies", "bridges", "game theory", "opera", "earthquakes",
    "remote work", "the Great Wall of China", "batteries", "bird migration", "file systems",
    "a balanced diet", "the speed of light", "wine tasting", "hash tables", "the Olympic Games",
)  # fmt: skip

PEOPLE = (
    "my landlord about a broken heater", "a colleague who is late with a report", "my bank",
    "the parents of my daughter's friend", "a customer whose parcel was lost", "my team",
    "a hotel where I forgot my jacket", "my professor", "the city about a noisy street",
    "a company that offered me a job", "my neighbour about the shared garden", "an old friend",
    "the organisers of a conference", "a supplier who sent the wrong parts", "my doctor's office",
    "a candidate whom we cannot hire", "the school about a missed day", "my manager",
    "a reader who found a mistake in my article", "the members of our sports club",
    "an airline about a cancelled flight", "a volunteer who helped us all weekend",
)  # fmt: skip

UNDERTAKINGS = (
    "a weekend in Lisbon", "moving to a new flat", "learning to swim late", "a job interview",
    "a surprise party for twelve guests", "running a half marathon", "writing a first novel",
    "a vegetable garden on a balcony", "a week of cheap dinners", "repainting a bedroom",
    "teaching a child to ride a bicycle", "a train journey through Europe", "a small online shop",
    "backing up family photos", "a wedding speech", "learning the guitar", "a camping trip",
    "sorting a messy hard disk", "a science project about plants", "a quiet birthday at home",
    "buying a used car", "a talk of five minutes about bees", "a month without sugar",
    "a website for a bakery", "preparing for an exam in statistics", "adopting a dog",
    "a reading group", "switching a small office to open source software", "repairing a bicycle",
)  # fmt: skip

SCENES = (
    "a lighthouse in winter", "two clocks that disagree", "a robot that is afraid of rain",
    "the last bus of the night", "a letter that arrives thirty years late", "a market at dawn",
    "a cat who runs a bakery", "an island that appears once a year", "a lost umbrella",
    "the first day of school", "a chess game between strangers", "an old map", "a silent piano",
    "a dragon who collects books", "a power cut in a big city", "a garden on the moon",
    "a detective who cannot lie", "a storm at sea", "a grandmother who learns to code",
    "the smell of fresh bread", "a door that was not there yesterday", "snow in July",
)  # fmt: skip

PASSAGES = (
    "The meeting on Tuesday was moved to Thursday because Anna is in Madrid until Wednesday. "
    "Please tell everybody, and bring the figures from September.",
    "Their going too the store tomorow, and than they will meet us at the park near they're house.",
    "On 4 March 1952 a small ship left the harbour of Bergen with eleven people and a piano on "
    "board. Nobody had asked why the piano was there.",
    "We was very happy with the hotel but the breakfast were cold and the room have no window.",
    "The new version is faster, uses half the memory and fixes nine bugs. It no longer runs on "
    "systems from before 2015, so check yours before you update.",
    "hey, cant come tonite, the baby is sick again, lets do it next week? sorry!!",
    "The museum is open from ten to six, except on Mondays. Children under twelve pay nothing, "
    "students half. Bags must be left at the entrance.",
    "Mix the flour with the salt, add the water slowly, and let the dough rest for an hour. Then "
    "fold it twice and bake it at 230 degrees until the crust is brown.",
    "Sales rose by 12 percent in the north and fell by 3 percent in the south. Costs stayed the "
    "same. We expect a better second half, if the weather allows.",
    "Dear Mr Okafor, thank you for your letter of 9 June. We have checked your account and found "
    "that the fee was charged twice. The money will be back within five days.",
    "The river is slow here. In summer the children jump from the bridge, and the old men pretend "
    "not to watch.",
    "If you hear the alarm, leave by the stairs, not by the lift, and wait on the other side of "
    "the street until you are called.",
)  # fmt: skip

LANGUAGES = ("Python", "JavaScript", "Rust", "Java", "C++", "Go", "SQL", "Bash", "TypeScript", "C")
CODE_TASKS = (
    "reverse the words of a sentence", "find duplicates in a list", "read a CSV file",
    "check whether a text is a palindrome", "merge two sorted lists", "count the words of a file",
    "parse a date", "cache the result of a slow call", "compute the first hundred primes",
    "validate an email address", "sort records by two keys", "flatten a nested list",
    "download a page and retry on errors", "walk through a tree", "convert Celsius to Fahrenheit",
    "group items by a key", "keep only the last ten lines of a log", "generate a random password",
    "compute a moving average", "find the shortest path in a graph", "round to two decimals",
    "implement a stack with push and pop", "split a text into lines of eighty letters",
    "compare two folders", "format a number with thousands separators", "rotate a matrix",
)  # fmt: skip

QUESTIONS = (
    "Why is the sky blue?", "How do planes stay in the air?", "What should I cook tonight?",
    "How many days are there until the end of a leap year on 1 March?", "Tell me a joke.",
    "What is the capital of Australia, and why is it not Sydney?", "Hello! Who are you?",
    "Can you recommend a book for a long flight?", "What is a good name for a small grey cat?",
    "If all roses are flowers and some flowers fade quickly, do some roses fade quickly?",
    "A train leaves at 14:10 and takes 95 minutes. When does it arrive?", "What can you do?",
    "Name five rivers in Asia.", "Which weighs more, a kilogram of iron or of feathers?",
    "I cannot sleep. What helps?", "How do I remove a coffee stain?", "Why do cats purr?",
    "Erkläre mir, was ein Regenbogen ist.", "¿Cuál es la diferencia entre ser y estar?",
    "Quels sont les meilleurs fromages français ?", "Scrivi una ricetta per una zuppa di verdure.",
    "Wie schreibe ich eine gute Bewerbung?", "Explique-moi la photosynthèse en trois phrases.",
    "Escribe un poema corto sobre el mar.", "Hoe leer ik snel een nieuwe taal?",
    "用简单的话解释什么是人工智能。", "日本の四季について短く説明してください。",
    "Opowiedz krótką historię o starym domu.", "Explique o que é juro composto.",
)  # fmt: skip
CHOICES = (
    ("Tea", "coffee"), ("A city", "a village"), ("Python", "JavaScript"), ("A bus", "a bicycle"),
    ("Mountains", "the sea"), ("Paper books", "e-books"), ("Tabs", "spaces"), ("Cats", "dogs"),
    ("Renting", "buying a home"), ("A laptop", "a desktop computer"), ("Cash", "a bank card"),
    ("SQL", "a spreadsheet"), ("Working alone", "working in a team"), ("Film", "theatre"),
)  # fmt: skip

SHELL_TASKS = (
    "list all files by size", "find files that changed today", "count the lines of a file",
    "show hidden files", "copy a folder", "rename many files at once", "delete empty folders",
    "search for a word in all files", "replace a word in a file", "unpack a tar archive",
    "pack a folder into a zip file", "see how much disk space is free", "find large files",
    "show the running processes", "stop a process by its name", "show my IP address",
    "download a file", "see the first ten lines of a file", "follow a log file while it grows",
    "change the owner of a file", "make a script executable", "create a symbolic link",
    "compare two files", "sort lines and remove duplicates", "show the calendar of this month",
    "schedule a job every hour", "connect to another machine", "copy a file to a server",
    "list open ports", "show which program uses a port", "check whether a host answers",
    "look up the address of a domain", "list all users", "change my password", "add a user",
    "mount a disk", "show the size of a folder", "print the working directory",
    "set an environment variable", "show the command history", "repeat the last command",
    "convert an image to another format", "resize an image", "cut a part out of a video",
    "extract the audio of a video", "commit my changes", "create a new branch", "undo a commit",
    "show what changed since the last commit", "clone a repository", "install a package",
    "update all packages", "remove a package", "list installed packages", "start a service",
    "restart the web server", "read the system log", "shut down the computer", "show the uptime",
    "measure how long a command takes", "run a command in the background", "watch a folder",
    "encrypt a file", "compute a checksum", "generate an SSH key", "list containers",
    "build an image", "print columns of a text file", "join the lines of a file",
    "pretty-print JSON", "take a screenshot", "record my terminal", "test the speed of a disk",
    "show information about the processor", "show how much memory is used", "kill all of my jobs",
    "find all Python files", "split a large file", "merge PDF files", "convert text to upper case",
    "show the type of a file", "list loaded kernel modules", "format a disk", "wipe a file",
)  # fmt: skip

COMMANDS = (
    "ls", "cd", "cp", "mv", "rm", "mkdir", "rmdir", "touch", "cat", "less", "head", "tail", "grep",
    "find", "sed", "awk", "sort", "uniq", "wc", "cut", "tr", "diff", "tar", "zip", "unzip", "gzip",
    "ssh", "scp", "rsync", "curl", "wget", "ping", "dig", "ip", "ss", "lsof", "ps", "top", "htop",
    "kill", "chmod", "chown", "ln", "df", "du", "free", "mount", "umount", "lsblk", "dd", "crontab",
    "systemctl", "journalctl", "git", "git commit", "git rebase", "git stash", "git log", "docker",
    "docker run", "make", "gcc", "python", "pip", "npm", "cargo", "apt", "dnf", "brew", "tmux",
    "screen", "vim", "nano", "man", "which", "alias", "export", "echo", "printf", "date", "cal",
    "history", "xargs", "tee", "watch", "time", "nohup", "jq", "ffmpeg", "convert", "openssl",
    "gpg", "ssh-keygen", "useradd", "passwd", "sudo", "uname", "uptime", "file", "stat", "split",
    "paste", "basename", "dirname", "realpath", "seq", "yes", "true", "nmap", "tcpdump", "strace",
)  # fmt: skip
