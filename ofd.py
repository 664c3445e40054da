import os,subprocess,time,fcntl,sys,struct
env=dict(os.environ,TMPDIR='/tmp/reader2/t')
L=lambda t,s,l: struct.pack('hhqqi4x',t,0,s,l,0)
for attempt in range(60):
    p=subprocess.Popen(['/tmp/reader2/locktest','--exact','locks_of_whole_files_belong_to_what_is_open'],env=env,stdout=subprocess.DEVNULL)
    held=None
    while p.poll() is None and held is None:
        for l in open('/proc/mounts'):
            m=l.split()[1]
            if m.startswith('/tmp/reader2/t/'):
                try:
                    fd=os.open(m+'/file',os.O_RDWR); fcntl.flock(fd,fcntl.LOCK_EX|fcntl.LOCK_NB); held=(m,fd); break
                except OSError: pass
    if held and p.poll() is None: break
m,fd=held
a=os.open(m+'/file',os.O_RDWR)
fcntl.fcntl(a,fcntl.F_OFD_SETLK,L(fcntl.F_WRLCK,0,10)); print('ofd taken')
b=os.open(m+'/file',os.O_RDWR)
def t(what):
    try: fcntl.fcntl(b,fcntl.F_OFD_SETLK,L(fcntl.F_WRLCK,0,10)); print(what,'got'); fcntl.fcntl(b,fcntl.F_OFD_SETLK,L(fcntl.F_UNLCK,0,10))
    except OSError as e: print(what,e)
t('while held:'); os.close(a); time.sleep(.5); t('after close of the holder:')
os.close(b); fcntl.flock(fd,fcntl.LOCK_UN); os.close(fd); print('test rc',p.wait(10))
